"""Tests of `POST /v1/generate-text`: its answers, and the errors for invalid requests."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from models.store import load_bundle
from service.server.app import create_app
from service.settings import Settings

WRONG_FIELDS = [
    ({}, "text: is missing"),
    ({"text": []}, "text: "),
    ({"text": ["a", 5]}, "text.1: "),
    ({"text": "\ud800"}, "text.0: the text holds half of a surrogate pair"),
    ({"text": "a", "beam_size": 0}, "beam_size: "),
    ({"text": "a", "beam_size": 33}, "beam_size: "),
    ({"text": "a", "beam_size": 2, "n_best": 3}, "n_best must be at most beam_size"),
    ({"text": "a", "max_output_tokens": 0}, "max_output_tokens: "),
    ({"text": "a", "max_output_tokens": 9}, "max_output_tokens must be between 1 and 8, not 9"),
    ({"text": "a", "max_output_tokens": "3"}, "max_output_tokens: "),
    ({"text": "a", "length_penalty": -1}, "length_penalty: "),
    ({"text": "a", "temperature": 0}, "temperature: "),
    ({"text": "a " * 20}, "the text has 22 tokens; the model's limit is 16"),
    ({"text": "word " * 10_000}, "characters; the model's limit is"),
    ({"text": "a", "prompt": "b"}, "prompt: unknown field (known: "),
]


@pytest.fixture(scope="module")
def client(notes_export, wait_until):
    with TestClient(create_app(Settings(model_dirs=(notes_export.path.parents[1],), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def library(notes_export):
    return load_bundle(notes_export.path, threads=1)


def generate(client, **body):
    return client.post("/v1/generate-text", json=body)


def results(response):
    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_constant=pytest.fail)["results"]


def test_one_text_and_several_have_the_same_form(client, library):
    texts = ["so we saw old fox then", "", "\N{ROBOT FACE} 你好\0", "[SEP]"]
    for given, several in ((texts, texts), (texts[0], texts[:1])):
        for answer, theirs in zip(results(generate(client, text=given)), library.generate(several), strict=True):
            assert answer["text"] == theirs.text
            assert [each["text"] for each in answer["outputs"]] == [each.text for each in theirs.outputs]
            scores = [each.score for each in theirs.outputs]
            assert [each["score"] for each in answer["outputs"]] == pytest.approx(scores, abs=1e-4)


def test_the_answer_says_which_model_gave_it(client):
    answer = generate(client, text="red gnu", beam_size=1, max_output_tokens=2).json()
    assert (answer["model"], answer["version"]) == ("notes", 1)
    assert [each["text"] for each in answer["results"][0]["outputs"]] == ["the gnu"]


def test_many_at_once_get_their_own(client):
    animals, kinds = ["ape", "bat", "cat", "cow", "dog", "elk", "fox", "gnu"], ["big", "old", "red", "shy"]
    pairs = [(animal, kind) for animal in animals for kind in kinds]
    with ThreadPoolExecutor(16) as pool:
        answers = pool.map(lambda pair: results(generate(client, text=f"we saw {pair[1]} {pair[0]} now")), pairs)
    for (animal, kind), answer in zip(pairs, answers, strict=True):
        assert answer[0]["outputs"][0]["text"] == f"the {animal} is {kind}."


@pytest.mark.parametrize(("body", "detail"), WRONG_FIELDS)
def test_rubbish_is_refused_and_named(client, detail_of, body, detail):
    response = client.post(
        "/v1/generate-text", content=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    assert detail in detail_of(response, 422)


def test_too_long_a_text_can_be_cut(client):
    text = "we saw red gnu " + "then " * 10_000
    assert results(generate(client, text=text, truncate=True))[0]["outputs"][0]["text"] == "the gnu is red."


def test_other_tasks_are_not_served_by_it(client, detail_of):
    assert "there is no model for translate" in detail_of(client.post("/v1/translate", json={"text": "a"}), 404)
    assert "unknown model 'x'; known models: notes:1" in detail_of(generate(client, text="a", model="x"), 404)


def test_what_is_written_is_counted(client, metric):
    before = metric(client, "softserve_generated_tokens_total", model="notes")
    generate(client, text="red gnu", beam_size=1)
    assert metric(client, "softserve_generated_tokens_total", model="notes") == before + 6
