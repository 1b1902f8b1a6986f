import json
import math
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from models.decoding.beam_search import SearchOptions
from models.decoding.continuous import Decoding
from models.store import load_bundle
from service.server.app import create_app
from service.settings import Settings

TEXTS = ["der Hund", "", "Und zu den?  Die Katze!\n", "🙂 你好\0", "</s> <unk>"]
WRONG_FIELDS = [
    ({}, "text: is missing"),
    ({"text": None}, "text: must be a text or a list of texts"),
    ({"text": []}, "text: "),
    ({"text": ["a", 5]}, "text.1: "),
    ({"text": "\ud800"}, "text.0: the text holds half of a surrogate pair"),
    ({"text": "a", "beam_size": 0}, "beam_size: "),
    ({"text": "a", "beam_size": 100}, "beam_size: "),
    ({"text": "a", "beam_size": "5"}, "beam_size: "),
    ({"text": "a", "beam_size": 5.0}, "beam_size: "),
    ({"text": "a", "beam_size": True}, "beam_size: "),
    ({"text": "a", "beam_size": None}, "beam_size: "),
    ({"text": "a", "n_best": 0}, "n_best: "),
    ({"text": "a", "n_best": 33}, "n_best: "),
    ({"text": "a", "beam_size": 2, "n_best": 3}, "n_best must be at most beam_size, which is 2, not 3"),
    ({"text": "a", "length_penalty": -0.1}, "length_penalty: "),
    ({"text": "a", "length_penalty": 10.5}, "length_penalty: "),
    ({"text": "a", "length_penalty": math.nan}, "length_penalty: "),
    ({"text": "a", "length_penalty": math.inf}, "length_penalty: "),
    ({"text": "a", "length_penalty": "1"}, "length_penalty: "),
    ({"text": "a", "temperature": 0}, "temperature: "),
    ({"text": "a", "temperature": math.nan}, "temperature: "),
    ({"text": "a", "seed": -1}, "seed: "),
    ({"text": "a", "seed": 2**63}, "seed: "),
    ({"text": "a", "sparse": 1}, "sparse: "),
    ({"text": "a", "truncate": "no"}, "truncate: "),
    ({"text": "a", "model": 5}, "model: "),
    ({"text": "a", "beam": 5}, "beam: unknown field (known: "),
    ({"text": "a", "alignment": True}, "alignment: the model "),
    ({"text": "a", "protect": "a"}, "protect: must be a list"),
    ({"text": "a", "protect": ["a", "("]}, "protect.1: '(' is no regular expression"),
    ({"text": "a", "protect": ["a" * 201]}, "protect.0: must have at most 200 characters"),
    ({"text": "a", "protect": ["a"] * 17}, "protect: must have at most 16 items"),
    (
        {"text": "a" * 5000 + "!", "protect": ["(a+)+$"]},
        "protect.0 takes longer than 50 ms on a text of 5001 characters",
    ),
    ({"text": "a", "protect_kinds": ["name"]}, "protect_kinds.0: must be "),
    ({"text": "a", "context": "a"}, "context: unknown field (known: "),
]


def translate(client, headers=None, **body):
    return client.post("/v1/translate", json=body, headers=headers)


def results(response):
    assert response.status_code == 200, response.text
    return response.json()["results"]


def assert_same(answers, expected):
    for answer, theirs in zip(answers, expected, strict=True):
        assert answer["text"] == theirs.text
        assert [each["text"] for each in answer["translations"]] == [each.text for each in theirs.translations]
        scores = [each.score for each in theirs.translations]
        assert [each["score"] for each in answer["translations"]] == pytest.approx(scores, abs=1e-4, rel=1e-4)


@pytest.fixture(scope="session")
def translator(babbler_bundle):
    """The model, loaded apart from the service's."""
    return load_bundle(babbler_bundle, threads=1)


class Gate:
    """Holds every step back while it is closed, and breaks those of a beam size."""

    def __init__(self):
        self.entered, self.opened, self.breaks = threading.Event(), threading.Event(), None
        self.opened.set()

    def before(self, step):
        def wait_and_step(decoding):
            if len(decoding):
                self.entered.set()
                assert self.opened.wait(20)
            if len(decoding) and decoding.search.beam_size == self.breaks:
                raise ArithmeticError("secret")
            return step(decoding)

        return wait_and_step


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture(scope="module")
def serve_babbler(babbler_bundle, wait_until, _no_settings_from_outside):
    def serve(**changes):
        app = create_app(Settings(threads=1, model_dirs=(babbler_bundle.parents[1],), **changes))
        return TestClient(app, raise_server_exceptions=False)

    return serve


@pytest.fixture(scope="module")
def babbling(serve_babbler, wait_until):
    """A service of the model, as it comes."""
    with serve_babbler() as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def gated(serve_babbler, gate, monkeypatch, wait_until, pool):
    """Serves the model behind the gate, with other settings, and posts requests on threads."""
    clients = []

    def serve(**changes):
        client = serve_babbler(**changes)
        clients.append(client)
        client.__enter__()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        monkeypatch.setattr(Decoding, "step", gate.before(Decoding.step))
        return client

    yield serve
    gate.opened.set()
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def held(gated, gate, pool):
    """A service that runs one request and does not go on before the gate opens."""

    def serve(**changes):
        client = gated(**changes)
        gate.opened.clear()
        running = pool.submit(translate, client, text="der Hund")
        assert gate.entered.wait(20)
        return client, running

    return serve


# ---- translations ----


def test_one_text(babbling, translator):
    response = translate(babbling, text="der Hund")
    assert (response.json()["model"], response.json()["version"]) == ("babbler", 1)
    (answer,) = results(response)
    assert set(answer) == {"text", "translations", "low_confidence"}
    assert set(answer["translations"][0]) == {"text", "score"}
    assert_same([answer], translator.translate(["der Hund"]))


def test_another_language_is_named(babbling):
    english, german = results(translate(babbling, text=["How are you today, my friend?", "Hund"]))
    assert (english["low_confidence"], english["detected_language"]) == (True, "en")
    assert "detected_language" not in german


def test_a_list_is_answered_in_order_as_by_the_library(babbling, translator):
    options = SearchOptions(n_best=2, length_penalty=0.6, sparse=True)
    answers = results(translate(babbling, text=TEXTS, beam_size=3, n_best=2, length_penalty=0.6, sparse=True))
    assert_same(answers, translator.translate(TEXTS, 3, options=options))


def test_samples_are_those_of_the_library(babbling, translator):
    answers = [
        results(translate(babbling, text="der Hund", beam_size=2, temperature=2.0, seed=seed))[0]["translations"]
        for seed in (3, 3, 4)
    ]
    assert answers[0] == answers[1] != answers[2]
    options = SearchOptions(temperature=2.0, seed=3)
    (expected,) = translator.translate(["der Hund"], 2, options=options)
    assert answers[0][0]["text"] == expected.translations[0].text


def test_more_sentences_than_run_at_once_are_answered_in_order(babbling):
    texts = [f"{number} " * (number % 3) for number in range(80)]
    assert [answer["text"] for answer in results(translate(babbling, text=texts, beam_size=1))] == texts


def test_concurrent_requests_of_different_beam_sizes(babbling, translator, pool):
    asked = [(TEXTS[number % 3], 1 + number % 4) for number in range(24)]
    posted = [pool.submit(translate, babbling, text=text, beam_size=beam) for text, beam in asked]
    for (text, beam), response in zip(asked, posted, strict=True):
        assert_same(results(response.result()), translator.translate([text], beam))


def test_nothing_but_white_space_is_answered(babbling):
    answers = results(translate(babbling, text=["", " \n"]))
    assert [answer["translations"] for answer in answers] == [[{"text": text, "score": 0.0}] for text in ("", " \n")]


def test_whole_numbers_are_length_penalties(babbling):
    assert results(translate(babbling, text="a", length_penalty=2))


# ---- models ----


def test_the_model_says_its_languages(babbling):
    (model,) = babbling.get("/v1/models").json()["models"]
    assert (model["task"], model["languages"]) == ("translation", {"source": "de", "target": "en"})


@pytest.mark.parametrize("name", ["nope", "babbler:2", "", "../babbler"])
def test_unknown_models_name_the_known_ones(babbling, detail_of, name):
    assert "known models: babbler:1" in detail_of(translate(babbling, text="a", model=name), 404)


@pytest.mark.parametrize("name", ["babbler", "babbler:1", None])
def test_the_model_may_be_named(babbling, name):
    assert results(translate(babbling, text="a", beam_size=1, model=name))


@pytest.mark.parametrize("name", [None, "next-word"])
def test_a_service_without_translator_says_so(client, detail_of, name):
    detail = detail_of(translate(client, text="a", model=name), 404)
    if name is None:
        assert detail == "there is no model for translate"
        return
    assert detail == (
        "the model 'next-word' (language-model) is for next-word, score, not for translate; models for translate: "
        "none; it is served by POST /v1/next-word and POST /v1/score"
    )


def test_a_translator_has_no_next_words(babbling, detail_of):
    for name in (None, "babbler"):
        detail_of(babbling.post("/v1/next-word", json={"context": "a", "model": name}), 404)


# ---- rubbish ----


@pytest.mark.parametrize(("body", "detail"), WRONG_FIELDS, ids=range(len(WRONG_FIELDS)))
def test_wrong_fields_are_named(babbling, detail_of, body, detail):
    response = babbling.post("/v1/translate", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert detail in detail_of(response, 422)


def test_a_sentence_that_is_too_long_names_length_and_limit(babbling, detail_of, metric):
    before = metric(babbling, "softserve_rejected_total", reason="invalid")
    detail = detail_of(translate(babbling, text=["a", "und " * 5000]), 422)
    assert re.fullmatch(r"the text has \d{4,} tokens in a sentence; the model's limit is 600", detail)
    assert metric(babbling, "softserve_rejected_total", reason="invalid") == before + 2


def test_more_sentences_than_the_queue_holds_are_refused(babbling, detail_of):
    assert "send fewer at a time" in detail_of(translate(babbling, text="Der Hund. Die Katze. " * 600), 413)


@settings(max_examples=25)
@given(texts=st.lists(st.text(max_size=12), min_size=1, max_size=3), beam_size=st.integers(1, 4))
def test_any_texts_are_answered(babbling, texts, beam_size):
    assert [answer["text"] for answer in results(translate(babbling, text=texts, beam_size=beam_size))] == texts


# ---- a busy model ----


def test_a_deadline_that_passes_in_the_queue(held, gate, detail_of, metric):
    client, running = held(max_batch_items=1)
    late = translate(client, text="spät", headers={"X-Request-Timeout-Ms": "100"})
    assert "deadline" in detail_of(late, 504)  # while the sequence before it still takes a step
    gate.opened.set()
    assert results(running.result())
    assert metric(client, "softserve_rejected_total", reason="expired") == 1


def test_a_deadline_that_passes_while_running(gated, gate, detail_of, pool, translator):
    client = gated()
    gate.opened.clear()
    late = pool.submit(translate, client, text="der Hund", headers={"X-Request-Timeout-Ms": "200"})
    assert gate.entered.wait(20)
    time.sleep(0.25)
    gate.opened.set()
    assert "deadline" in detail_of(late.result(), 504)
    assert_same(results(translate(client, text="der Hund")), translator.translate(["der Hund"]))


def test_a_full_queue_is_overloaded_until_it_is_not(held, gate, detail_of, metric, pool, wait_until):
    client, running = held(max_batch_items=1, max_queue_items=1)
    waiting = pool.submit(translate, client, text="zu")
    wait_until(lambda: metric(client, "softserve_queue_items") == 1)
    refused = translate(client, text="in")
    assert "queue is full" in detail_of(refused, 429)
    assert refused.headers["retry-after"] == "1"
    gate.opened.set()
    assert results(running.result())
    assert results(waiting.result())
    assert results(translate(client, text="in"))


def test_an_error_is_said_without_its_secrets_and_forgotten(gated, gate, detail_of, translator):
    client = gated()
    gate.breaks = 3
    assert "secret" not in detail_of(translate(client, text="der Hund", beam_size=3), 500)
    gate.breaks = None
    assert_same(results(translate(client, text="der Hund", beam_size=3)), translator.translate(["der Hund"], 3))


# ---- metrics ----


def test_generated_tokens_are_counted(babbling, translator, metric):
    before = metric(babbling, "softserve_generated_tokens_total")
    assert results(translate(babbling, text=["zu", "in"], beam_size=2, n_best=2))
    decoding = translator.start_decoding(2)
    parts = [part for text in ("zu", "in") for part in translator.query(text).parts()]
    decoding.add([part.tokens for part in parts], [(part, SearchOptions(n_best=2), part.max_tokens) for part in parts])
    found = []
    while len(decoding):
        found += decoding.step()
    expected = sum(len(each.tokens) + 1 for _, hypotheses in found for each in hypotheses)
    assert metric(babbling, "softserve_generated_tokens_total", model="babbler") - before == expected
    assert metric(babbling, "softserve_queue_items") == 0
    assert metric(babbling, "softserve_batch_items_count", model="babbler") > 0


def test_server_timing_says_where_the_time_went(babbling):
    response = translate(babbling, text="der Hund")
    pattern = r"queue;dur=(\d+\.\d{3}), tokenize;dur=(\d+\.\d{3}), infer;dur=(\d+\.\d{3})"
    assert float(re.fullmatch(pattern, response.headers["server-timing"]).group(3)) > 0
