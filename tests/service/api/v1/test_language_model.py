import json
import re
import time

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from models.store import load_bundle
from service.server.app import create_app
from service.settings import Settings

JSON_HEADERS = {"Content-Type": "application/json"}
CONTEXTS = ["thank you very", "", "we had a very good time at the end of the", "zzyzx 😀 你好\0"]
LIMIT = 1 << 20
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["context", "text", "top_k", "explain", "truncate", "model", "other"])

MALFORMED = [
    b"",
    b" ",
    b"{",
    b'{"context": "a"',
    b'{"context": "a",}',
    b"context=a",
    b"[]",
    b'["a"]',
    b'"a"',
    b"5",
    b"null",
    b'{"context": "\xff"}',
    b"\x00",
    b"\x1f\x8b\x08\x00",
    b"[" * 100_000,
    b'{"context": ' + b"[" * 100_000,
    b'{"context": "a", "top_k": ' + b"9" * 5000 + b"}",
]
WRONG_FIELDS = [
    ({}, "context: is missing"),
    ({"context": None}, "context: "),
    ({"context": 5}, "context: must be a text or a list of texts"),
    ({"context": {"text": "a"}}, "context: must be a text or a list of texts"),
    ({"context": []}, "context: "),
    ({"context": ["a", None]}, "context.1: "),
    ({"context": [["a"]]}, "context.0: "),
    ({"context": "\ud800"}, "context.0: the text holds half of a surrogate pair"),
    ({"context": ["a", "b\udfff"]}, "context.1: the text holds half of a surrogate pair"),
    ({"context": "a", "model": "\ud800"}, "model: the text holds half of a surrogate pair"),
    ({"context": "a", "model": 5}, "model: "),
    ({"context": "a", "top_k": 0}, "top_k: "),
    ({"context": "a", "top_k": -1}, "top_k: "),
    ({"context": "a", "top_k": "5"}, "top_k: "),
    ({"context": "a", "top_k": 5.0}, "top_k: "),
    ({"context": "a", "top_k": True}, "top_k: "),
    ({"context": "a", "top_k": None}, "top_k: "),
    ({"context": "a", "top_k": float("nan")}, "top_k: "),
    ({"context": "a", "explain": "yes"}, "explain: "),
    ({"context": "a", "truncate": 1}, "truncate: "),
    ({"context": "a", "topk": 5}, "topk: unknown field (known: "),
    ({"context": "a", "text": "a"}, "text: "),
]


def next_word(client, headers=None, **body):
    return client.post("/v1/next-word", json=body, headers=headers)


def score(client, headers=None, **body):
    return client.post("/v1/score", json=body, headers=headers)


def post(client, content, path="/v1/next-word"):
    return client.post(path, content=content, headers=JSON_HEADERS)


def results(response):
    assert response.status_code == 200, response.text
    return response.json()["results"]


def assert_same_words(answer, expected):
    """The answer of the service is the library's, up to rounding."""
    assert answer["context"] == expected.context
    assert answer["entropy"] == pytest.approx(expected.entropy, abs=1e-4)
    theirs = [word.log_probability for word in expected.words]
    assert [word["log_probability"] for word in answer["words"]] == pytest.approx(theirs, abs=1e-4)
    for word in answer["words"]:
        assert word["probability"] == pytest.approx(2.718281828459045 ** word["log_probability"])


# ---- next words ----


def test_one_context(client, library):
    response = next_word(client, context="thank you very")
    manifest = library.manifest
    assert (response.json()["model"], response.json()["version"]) == (manifest.name, manifest.version)
    (answer,) = results(response)
    assert set(answer) == {"context", "words", "unknown", "unknown_probability", "entropy"}
    assert set(answer["words"][0]) == {"word", "probability", "log_probability", "sentence_end"}
    assert answer["words"][0]["word"] == "much"
    assert len(answer["words"]) == 10
    assert_same_words(answer, library.next_words(["thank you very"])[0])


def test_a_list_is_answered_in_order_as_by_the_library(client, library):
    answers = results(next_word(client, context=CONTEXTS, top_k=7))
    for answer, expected in zip(answers, library.next_words(CONTEXTS, 7), strict=True):
        assert_same_words(answer, expected)


def test_more_texts_than_a_batch_holds_are_answered_in_order(client):
    contexts = [f"{number} " * (number % 9) for number in range(100)]
    assert [answer["context"] for answer in results(next_word(client, context=contexts, top_k=1))] == contexts


def test_the_whole_vocabulary_may_be_asked_for(client, library):
    (answer,) = results(next_word(client, context="a", top_k=library.vocab_size))
    assert len({word["word"] for word in answer["words"]} - {"<unk>"}) == library.vocab_size - 1
    whole = sum(word["probability"] for word in answer["words"]) + answer["unknown_probability"]
    assert whole == pytest.approx(1, abs=1e-4)


def test_unknown_words_are_those_of_each_context(client):
    for _ in range(2):  # the second time from the prefix cache
        first, second, third = results(next_word(client, context=["my zzyzx", "my QWRT", "my dog"], top_k=1))
        assert (first["unknown"], second["unknown"], third["unknown"]) == (["zzyzx"], ["QWRT"], [])
    (longer,) = results(next_word(client, context="my QWRT and zyxwv", top_k=1))
    assert longer["unknown"] == ["QWRT", "zyxwv"]


def test_explain_returns_the_weight_of_each_component_of_a_mixture(tiny_bundle, wait_until):
    with TestClient(create_app(Settings(model_dirs=(tiny_bundle.parents[1],), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        (answer,) = results(next_word(client, context="one cow", explain=True))
    expected = load_bundle(tiny_bundle, threads=1).next_words(["one cow"])[0].components
    assert [component["kernel"] for component in answer["components"]] == ["lin", "pow"]
    assert [component["hyperparameters"] for component in answer["components"]] == [{}, {"p": 2.0}]
    weights = [component["weight"] for component in answer["components"]]
    assert weights == pytest.approx([component.weight for component in expected], abs=1e-4)


def test_a_single_component_has_no_weight(client):
    (answer,) = results(next_word(client, context="a", explain=True))
    assert "components" not in answer


def test_top_k_above_the_vocabulary_is_all_words(client, library, detail_of):
    (answer,) = results(next_word(client, context="a", top_k=10**30))
    assert len(answer["words"]) == library.vocab_size - 1
    detail = detail_of(next_word(client, context=["a"] * 14, top_k=10**30), 422)
    assert f"{14 * (library.vocab_size - 1)} result items (--max-result-items); the limit is 100000" in detail


# ---- scores ----


def test_scores_are_those_of_the_library(client, library):
    texts = ["Thank you very much .", "", "zzyzx 😀", "a " * 70]
    response = score(client, text=texts)
    assert response.json()["model"] == library.manifest.name
    for answer, expected in zip(results(response), library.score(texts), strict=True):
        assert (answer["text"], len(answer["tokens"])) == (expected.text, len(expected.tokens))
        assert answer["log_probability"] == pytest.approx(expected.log_probability, abs=1e-3)
        assert answer["perplexity"] == pytest.approx(expected.perplexity, rel=1e-4)
        for token, theirs in zip(answer["tokens"], expected.tokens, strict=True):
            assert (token["word"], token["unknown"]) == (theirs.word, theirs.unknown)
            assert token["log_probability"] == pytest.approx(theirs.log_probability, abs=1e-4)


def test_an_explained_score_lists_rank_entropy_and_alternatives(client, library):
    response = score(client, text=["we had a zyxwv"], explain=True, top_k=2)
    (expected,) = library.score(["we had a zyxwv"], explain=2)
    tokens = response.json()["results"][0]["tokens"]
    assert [token["rank"] for token in tokens] == [token.rank for token in expected.tokens]
    assert [token["entropy"] for token in tokens] == pytest.approx(
        [token.entropy for token in expected.tokens], abs=1e-4
    )
    for token, known in zip(tokens, expected.tokens, strict=True):
        assert [each["word"] for each in token["alternatives"]] == [each.word for each in known.alternatives]
        assert {"probability", "log_probability"} < set(token["alternatives"][0])
    assert set(tokens[0]) == {
        "word",
        "log_probability",
        "unknown",
        "sentence_end",
        "rank",
        "entropy",
        "alternatives",
    }


def test_without_explain_tokens_are_as_before(client):
    (result,) = score(client, text="we had", top_k=3).json()["results"]
    assert {frozenset(token) for token in result["tokens"]} == {
        frozenset({"word", "log_probability", "unknown", "sentence_end"})
    }


@pytest.mark.parametrize("top_k", [0, 101])
def test_a_bad_number_of_alternatives_is_refused(client, detail_of, top_k):
    assert "top_k" in detail_of(score(client, text="we had", explain=True, top_k=top_k), 422)


def test_one_text_is_scored(client):
    (answer,) = results(score(client, text="zzyzx !"))
    assert [(token["word"], token["unknown"]) for token in answer["tokens"]] == [
        ("zzyzx", True),
        ("!", False),
        ("</s>", False),
    ]


# ---- models ----


@pytest.mark.parametrize(
    "name", ["nope", "../..", "../next-word", "/etc/passwd", "next-word:99", "", "a\0", "ä" * 5000]
)
@pytest.mark.parametrize("path", ["/v1/next-word", "/v1/score"])
def test_requests_for_unknown_models_name_the_known_ones(client, library, detail_of, path, name):
    field = "context" if path == "/v1/next-word" else "text"
    response = client.post(path, json={field: "a", "model": name})
    assert f"known models: next-word:{library.manifest.version}" in detail_of(response, 404)


def test_the_model_may_be_named_with_its_version(client, library):
    for name in (None, "next-word", f"next-word:{library.manifest.version}"):
        assert results(next_word(client, context="a", model=name))
        assert results(score(client, text="a", model=name))


# ---- rubbish ----


@pytest.mark.parametrize("content", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_bodies(client, detail_of, content):
    assert "body" in detail_of(post(client, content), 400)


@pytest.mark.parametrize(("body", "detail"), WRONG_FIELDS, ids=range(len(WRONG_FIELDS)))
def test_wrong_fields_are_named(client, detail_of, body, detail):
    assert detail in detail_of(post(client, json.dumps(body)), 422)


def test_all_wrong_fields_are_named_at_once(client, detail_of):
    detail = detail_of(post(client, b'{"context": 5, "top_k": "x", "zzz": 1}'), 422)
    assert {part.partition(":")[0] for part in detail.split("; ")} == {"context", "top_k", "zzz"}


def test_a_key_that_is_no_text_is_not_taken_for_a_body_that_is_no_object(client, detail_of):
    response = post(client, b'{"context": "a", "\\ud800": 1}')
    assert "must be a JSON object" not in detail_of(response, response.status_code)
    assert response.status_code in (400, 422)


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        ("application/x-www-form-urlencoded", b"context=a"),
        ("multipart/form-data; boundary=x", b"--x--"),
        ("text/plain", b'{"context": "a"}'),
        ("", b'{"context": "a"}'),
    ],
)
def test_other_content_types_are_refused_and_named(client, detail_of, content_type, content):
    response = client.post("/v1/next-word", content=content, headers={"Content-Type": content_type})
    assert "sent with Content-Type: application/json" in detail_of(response, 400)


def test_a_megabyte_of_text_names_length_and_limit(client, library, detail_of):
    limit = 64 * library.manifest.config.limits.max_tokens
    for response in (next_word(client, context="a " * 500_000), score(client, text="a " * 500_000)):
        assert f"has 1000000 characters; the model's limit is {limit}" in detail_of(response, 422)


def test_too_many_tokens_name_length_and_limit(client, library, detail_of):
    limit = library.manifest.config.limits.max_tokens
    detail = detail_of(next_word(client, context="a " * (limit + 1)), 422)
    assert detail == f"the text has {limit + 1} tokens; the model's limit is {limit}"


def test_a_megabyte_of_text_may_be_cut(client, library):
    tokens = library.manifest.config.limits.max_tokens
    (words,) = results(next_word(client, context="a " * 500_000, truncate=True, top_k=3))
    assert (len(words["words"]), words["truncated"]) == (3, 500_000 - tokens)
    (scored,) = results(score(client, text="a " * 500_000, truncate=True))
    assert (len(scored["tokens"]), scored["truncated"]) == (tokens + 1, 500_000 - tokens)
    for operation, field in ((next_word, "context"), (score, "text")):
        assert "truncated" not in results(operation(client, **{field: "we had", "truncate": True}))[0]


def test_one_text_too_long_refuses_the_whole_list(client, detail_of):
    assert "characters" in detail_of(next_word(client, context=["a", "a " * 100_000]), 422)


def test_a_body_above_the_limit_is_refused(client, detail_of):
    assert str(LIMIT) in detail_of(post(client, b" " * (LIMIT + 1)), 413)


def test_a_chunked_body_above_the_limit_is_refused(client, detail_of):
    def chunks():
        yield b'{"context": "'
        for _ in range(LIMIT // 65536 + 1):
            yield b"a" * 65536

    assert str(LIMIT) in detail_of(post(client, chunks()), 413)


def test_a_body_at_the_limit_is_read(client):
    assert results(post(client, b'{"context": "a"}'.ljust(LIMIT)))


def test_a_chunked_body_is_read(client):
    assert results(post(client, (part for part in [b'{"cont', b'ext": ', b'"a"}'])))


@settings(deadline=None, max_examples=40)
@given(content=st.binary(max_size=60))
def test_any_bytes_are_refused(client, content):
    assert post(client, content).status_code in (400, 422)


@settings(deadline=None, max_examples=60)
@given(body=st.dictionaries(FIELDS, JSON, max_size=4), path=st.sampled_from(["/v1/next-word", "/v1/score"]))
def test_any_body_is_answered_or_refused(client, body, path):
    response = post(client, json.dumps(body), path)
    assert response.status_code in (200, 400, 404, 422)
    assert (response.headers["content-type"] == "application/json") == (response.status_code == 200)


@settings(deadline=None, max_examples=30)
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_any_texts_are_answered(client, texts):
    assert [answer["context"] for answer in results(next_word(client, context=texts, top_k=1))] == texts
    assert [answer["text"] for answer in results(score(client, text=texts))] == texts


def test_after_all_rubbish_a_good_request_works(client):
    for content in [*MALFORMED, *(json.dumps(body) for body, _ in WRONG_FIELDS)]:
        assert post(client, content).status_code in (400, 422)
        assert post(client, content, "/v1/score").status_code in (400, 422)
    assert results(next_word(client, context="thank you very"))[0]["words"][0]["word"] == "much"
    assert results(score(client, text="a"))


# ---- headers ----


@pytest.mark.parametrize("path", ["/v1/next-word", "/v1/score"])
def test_server_timing_says_where_the_time_went(client, path):
    started = time.monotonic()
    response = client.post(path, json={"context" if path == "/v1/next-word" else "text": "thank you"})
    elapsed = 1000 * (time.monotonic() - started)
    parts = re.fullmatch(
        r"queue;dur=(\d+\.\d{3}), tokenize;dur=(\d+\.\d{3}), infer;dur=(\d+\.\d{3})", response.headers["server-timing"]
    )
    assert 0 < sum(map(float, parts.groups())) <= elapsed


@pytest.mark.parametrize("value", ["abc", "", "0", "-1", "1e3", "1.5", "0x10", "5 ms", "nan"])
def test_a_rubbish_deadline_is_named(client, detail_of, value):
    response = next_word(client, context="a", headers={"X-Request-Timeout-Ms": value})
    assert "x-request-timeout-ms" in detail_of(response, 422).lower()


@pytest.mark.parametrize("value", ["30000", "3600000", "9" * 30])
def test_a_generous_deadline_changes_nothing(client, value):
    assert results(next_word(client, context="a", headers={"X-Request-Timeout-Ms": value}))
