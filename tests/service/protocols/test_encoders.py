"""Embeddings, rerankers and pairs over HTTP: the native endpoints, and those of TEI, OpenAI and Hugging Face."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from models.store import load_bundle
from service.server.app import create_app
from service.settings import Settings
from tests.support.waiting import wait_until

TEXTS = ["Where is my parcel?", "I want to cancel my order; please call me.", "one two"]


@pytest.fixture(scope="module")
def client(encoder_models: Path) -> Iterator[TestClient]:
    settings = Settings(threads=1, model_dirs=(encoder_models,), protocols="native,tei,openai,hf")
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def model(encoder_models: Path) -> Callable[[str], Any]:
    loaded = {name: load_bundle(encoder_models / name / "1") for name in ("vectors", "ranks", "follows")}
    return lambda name: loaded[name]


def answer(client: TestClient, path: str, body: object, status: int = 200) -> Any:
    found = client.post(path, json=body)
    assert found.status_code == status, found.text
    return found.json()


# ---- the native endpoints ----


def test_embed_gives_vectors(client: TestClient, model: Callable[[str], Any]) -> None:
    expected = model("vectors").embed(TEXTS)
    found = answer(client, "/v1/embed", {"text": TEXTS})
    assert found["model"] == "vectors"
    np.testing.assert_allclose([each["embedding"] for each in found["results"]], expected, atol=1e-6)
    chosen = {"prompt": "query", "dimensions": 4, "normalize": False}
    (one,) = answer(client, "/v1/embed", {"text": TEXTS[0], **chosen})["results"]
    np.testing.assert_allclose(one["embedding"], model("vectors").embed(TEXTS[:1], **chosen)[0], atol=1e-6)
    detail = answer(client, "/v1/embed", {"text": "a", "prompt": "other"}, 422)["detail"]
    assert detail == "the model has no prompt 'other'; its prompts: 'query'"
    assert (
        "dimensions must be from 1 to 16, not 17"
        in answer(client, "/v1/embed", {"text": "a", "dimensions": 17}, 422)["detail"]
    )


@pytest.mark.parametrize("precision", ["float16", "int8", "binary", "ubinary"])
def test_embed_has_the_numbers_of_the_precision(
    precision: str, client: TestClient, model: Callable[[str], Any]
) -> None:
    expected = model("vectors").embed(TEXTS, precision=precision)
    found = answer(client, "/v1/embed", {"text": TEXTS, "precision": precision})["results"]
    vectors = [each["embedding"] for each in found]
    assert {type(number) for vector in vectors for number in vector} == {float if precision == "float16" else int}
    if precision == "float16":  # 8 decimals are as many as these values need
        np.testing.assert_array_equal(np.array(vectors, np.float16), expected)
    else:
        assert vectors == expected.tolist()
    for wrong in ({"precision": "int8", "normalize": False}, {"precision": "binary", "dimensions": 12}):
        assert "precision" in answer(client, "/v1/embed", {"text": "a", **wrong}, 422)["detail"]


LONG = " ".join(f"{word} {number}" for number, word in enumerate(["one", "two", "parcel", "order"] * 12))


@pytest.mark.parametrize("windows", ["mean", "max"])
def test_long_texts_are_read_in_windows(windows: str, client: TestClient, model: Callable[[str], Any]) -> None:
    chosen: dict[str, Any] = {"windows": windows, "overlap": 4}
    vectors = model("vectors").embed([TEXTS[0], LONG], prompt="query", **chosen)
    found = answer(client, "/v1/embed", {"text": [TEXTS[0], LONG], "prompt": "query", **chosen})["results"]
    np.testing.assert_allclose([each["embedding"] for each in found], vectors, atol=1e-6)
    (query,) = model("vectors").queries_of([LONG], prompt="query", **chosen)
    assert [each["windows"] for each in found] == [1, len(query.parts())]
    assert "windows" not in answer(client, "/v1/embed", {"text": TEXTS[0]})["results"][0]
    (number,) = answer(client, "/v1/regress", {"text": LONG, **chosen})["results"]
    (expected,) = model("ranks").regress([LONG], **chosen)
    assert number["value"] == pytest.approx(expected.value, abs=1e-5)
    assert number["windows"] == expected.windows > 1
    (classified,) = answer(client, "/v1/classify", {"text": LONG, "model": "follows", **chosen})["results"]
    (wanted,) = model("follows").classify([LONG], **chosen)
    assert [each["label"] for each in classified["labels"]] == [each.label for each in wanted.labels]
    assert classified["labels"][0]["probability"] == pytest.approx(wanted.labels[0].probability, abs=1e-6)
    assert classified["windows"] == wanted.windows > 1


def test_windows_that_are_refused(client: TestClient) -> None:
    for path in ("/v1/embed", "/v1/regress", "/v1/classify"):
        for body, message in (
            ({"overlap": 4}, "an overlap needs windows"),
            ({"windows": "mean", "truncate": True}, "give either windows or truncate"),
            ({"windows": "mean", "overlap": 1000}, "overlap must be from 0 to"),
        ):
            given = {"text": "a", **body, **({"model": "follows"} if path == "/v1/classify" else {})}
            assert message in answer(client, path, given, 422)["detail"]
    pair = {"text": "a", "text_pair": "b", "windows": "max"}
    assert "not for pairs" in answer(client, "/v1/regress", pair, 422)["detail"]
    assert "not for pairs" in answer(client, "/v1/classify", {**pair, "model": "follows"}, 422)["detail"]
    assert client.post("/v1/embed", json={"text": "a", "windows": "median"}).status_code == 422


def test_a_text_takes_as_many_places_of_the_queue_as_it_has_windows(encoder_models: Path) -> None:
    settings = Settings(threads=1, model_dirs=(encoder_models,), max_queue_items=4)
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        body = {"text": LONG, "windows": "mean", "overlap": 0}
        refused = client.post("/v1/embed", json=body)
        assert refused.status_code in (413, 429), refused.text
        (short,) = answer(client, "/v1/embed", {**body, "text": LONG[:120]})["results"]
        assert 1 < short["windows"] <= 4


def test_rerank_and_regress_give_numbers(client: TestClient, model: Callable[[str], Any]) -> None:
    expected = model("ranks").rerank(TEXTS[0], TEXTS)
    found = answer(client, "/v1/rerank", {"query": TEXTS[0], "text": TEXTS})["results"]
    assert [each["score"] for each in found] == pytest.approx([each.score for each in expected], abs=1e-6)
    assert [each["text"] for each in found] == TEXTS
    raw = answer(client, "/v1/rerank", {"query": TEXTS[0], "text": TEXTS, "activation": "none"})["results"]
    assert [each["score"] for each in raw] == pytest.approx([each.value for each in expected], abs=1e-5)
    (pair,) = answer(client, "/v1/regress", {"text": TEXTS[0], "text_pair": TEXTS[1]})["results"]
    assert pair["value"] == pytest.approx(raw[1]["score"], abs=1e-5)
    assert answer(client, "/v1/rerank", {"text": TEXTS}, 422)["detail"].startswith("query is missing")


def test_classify_reads_a_pair(client: TestClient, model: Callable[[str], Any]) -> None:
    classifier = model("follows")
    (expected,) = classifier.run(classifier.pair_queries([(TEXTS[0], TEXTS[1])], 3))
    body = {"text": TEXTS[0], "text_pair": TEXTS[1], "model": "follows"}
    (found,) = answer(client, "/v1/classify", body)["results"]
    assert [each["label"] for each in found["labels"]] == [each.label for each in expected.labels]
    assert found["labels"][0]["probability"] == pytest.approx(expected.labels[0].probability, abs=1e-6)


def test_the_model_list_says_what_there_is(client: TestClient) -> None:
    listed = {each["name"]: each for each in client.get("/v1/models").json()["models"]}
    assert listed["vectors"]["operations"] == ["embed"]
    assert listed["vectors"]["kernels"] == []
    assert (listed["vectors"]["dimensions"], listed["vectors"]["prompts"]) == (16, {"query": "one "})
    assert listed["ranks"]["operations"] == ["rerank", "regress"]


# ---- Text Embeddings Inference ----


def test_tei_embeds(client: TestClient, model: Callable[[str], Any]) -> None:
    expected = model("vectors").embed(TEXTS)
    np.testing.assert_allclose(answer(client, "/embed", {"inputs": TEXTS}), expected, atol=1e-6)
    np.testing.assert_allclose(answer(client, "/embed", {"inputs": TEXTS[0]}), expected[:1], atol=1e-6)
    raw = answer(client, "/embed", {"inputs": TEXTS[:1], "normalize": False, "prompt_name": "query", "dimensions": 3})
    expected = model("vectors").embed(TEXTS[:1], normalize=False, prompt="query", dimensions=3)
    np.testing.assert_allclose(raw, expected, atol=1e-6)
    ids = model("vectors").queries(TEXTS[:1])[0].encoded.tokens
    by_ids = answer(client, "/embed", {"inputs": [list(ids)]})
    np.testing.assert_allclose(by_ids, model("vectors").embed(TEXTS[:1]), atol=1e-6)
    long = {"inputs": "one two three " * 40}
    assert answer(client, "/embed", long, 422)["error_type"] == "Validation"
    assert len(answer(client, "/embed", {**long, "truncate": True})) == 1
    assert answer(client, "/embed", {"inputs": []}, 400)["error"] == "`inputs` cannot be empty"
    for wrong in ([["a"]], [1, "a"], {"a": 1}, [[1], []], [True]):
        assert answer(client, "/embed", {"inputs": wrong}, 422)["error_type"] == "Validation"
    for path in ("/embed_sparse", "/embed_all"):
        assert "vectors of whole texts are at /embed" in answer(client, path, {"inputs": "a"}, 422)["error"]


def test_tei_reranks_in_order_of_the_scores(client: TestClient, model: Callable[[str], Any]) -> None:
    found = answer(client, "/rerank", {"query": TEXTS[0], "texts": TEXTS, "return_text": True})
    expected = model("ranks").rerank(TEXTS[0], TEXTS, activation="sigmoid")
    assert [each["score"] for each in found] == sorted((each["score"] for each in found), reverse=True)
    for each in found:
        assert each["text"] == TEXTS[each["index"]]
        assert each["score"] == pytest.approx(expected[each["index"]].score, abs=1e-6)
    raw = answer(client, "/rerank", {"query": TEXTS[0], "texts": TEXTS, "raw_scores": True})
    assert [each["index"] for each in raw] == [each["index"] for each in found]
    assert raw[0]["score"] == pytest.approx(expected[raw[0]["index"]].value, abs=1e-5)
    assert "text" not in raw[0]
    assert answer(client, "/rerank", {"query": "a", "texts": []}, 400)["error"] == "`texts` cannot be empty"
    broken = client.post("/rerank", content=rb'{"query": "\ud800", "texts": ["a"]}')
    assert broken.status_code == 400


def test_tei_classifies_pairs(client: TestClient, model: Callable[[str], Any]) -> None:
    classifier = model("follows")
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[0])]
    expected = classifier.run(classifier.pair_queries(pairs, 3))
    found = answer(client, "/predict", {"inputs": [list(pair) for pair in pairs]})
    for scores, result in zip(found, expected, strict=True):
        wanted = {each.label: pytest.approx(each.probability, abs=1e-6) for each in result.labels}
        assert {each["label"]: each["score"] for each in scores} == wanted
    assert answer(client, "/predict", {"inputs": list(pairs[0])}) == found[0]
    assert len(answer(client, "/predict", {"inputs": [[TEXTS[0]], [TEXTS[1]]]})) == 2
    assert answer(client, "/predict", {"inputs": [["a"], ["a", "b"]]}, 422)["error_type"] == "Validation"
    assert answer(client, "/predict", {"inputs": [["a", "b", "c"]]}, 422)["error_type"] == "Validation"


# ---- OpenAI ----


def test_openai_embeds(client: TestClient, model: Callable[[str], Any]) -> None:
    expected = model("vectors").embed(TEXTS)
    found = answer(client, "/v1/embeddings", {"input": TEXTS, "model": "vectors"})
    assert found["object"] == "list"
    assert [each["index"] for each in found["data"]] == [0, 1, 2]
    np.testing.assert_allclose([each["embedding"] for each in found["data"]], expected, atol=1e-6)
    tokens = sum(query.length for query in model("vectors").queries(TEXTS))
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    body = {"input": TEXTS[0], "model": "vectors", "encoding_format": "base64", "dimensions": 8}
    (coded,) = answer(client, "/v1/embeddings", body)["data"]
    vector = np.frombuffer(base64.b64decode(coded["embedding"]), "<f4")
    np.testing.assert_allclose(vector, model("vectors").embed(TEXTS[:1], dimensions=8)[0], atol=1e-6)
    (halves,) = answer(client, "/v1/embeddings", {**body, "embed_dtype": "float16"})["data"]
    assert np.frombuffer(base64.b64decode(halves["embedding"]), "<f2").tolist() == vector.astype("<f2").tolist()
    plain = answer(client, "/v1/embeddings", {"input": TEXTS, "model": "vectors", "embed_dtype": "float16"})
    assert plain["data"] == found["data"]  # as in vLLM, it is for base64 alone
    ids = list(model("vectors").queries(TEXTS[:1])[0].encoded.tokens)
    for given in (ids, [ids]):
        (by_ids,) = answer(client, "/v1/embeddings", {"input": given, "model": "vectors"})["data"]
        np.testing.assert_allclose(by_ids["embedding"], expected[0], atol=1e-6)
    assert answer(client, "/v1/embeddings", {"input": [9**9], "model": "vectors"}, 400)["error"]["message"]
    assert answer(client, "/v1/embeddings", {"input": TEXTS, "model": "no"}, 404)["error"]["code"] == "model_not_found"
    for wrong in ([], [[]], [1.5], ["a", 1], {}):
        found = answer(client, "/v1/embeddings", {"input": wrong, "model": "vectors"}, 400)
        assert found["error"]["type"] == "invalid_request_error"


# ---- Hugging Face ----


def test_hugging_face_extracts_features_and_compares_sentences(client: TestClient, model: Callable[[str], Any]) -> None:
    expected = model("vectors").embed(TEXTS)
    np.testing.assert_allclose(answer(client, "/hf/vectors", {"inputs": TEXTS}), expected, atol=1e-6)
    stated = answer(client, "/hf/vectors", {"inputs": TEXTS[:1], "normalize": False, "prompt_name": "query"})
    np.testing.assert_allclose(stated, model("vectors").embed(TEXTS[:1], normalize=False, prompt="query"), atol=1e-6)
    inside = answer(client, "/hf/vectors", {"inputs": TEXTS[:1], "parameters": {"normalize": False}})
    np.testing.assert_allclose(inside, model("vectors").embed(TEXTS[:1], normalize=False), atol=1e-6)
    compared = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    np.testing.assert_allclose(answer(client, "/hf/vectors", {"inputs": compared}), expected @ expected[0], atol=1e-6)
    assert answer(client, "/hf/vectors", {"inputs": {**compared, "sentences": []}}) == []
    assert "this model embeds no sentences" in answer(client, "/hf/follows", {"inputs": compared}, 422)["error"]
    answer(client, "/hf/vectors", {"inputs": TEXTS, "parameters": {"top_k": 3}}, 422)
