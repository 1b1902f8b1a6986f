"""Tests of a served model with a sparse output layer: JSON has no infinity, so the impossible is left out or null."""

import json
import math

import pytest
from fastapi.testclient import TestClient

from models.operations.language import ScoreResult
from models.store import load_bundle
from models.tasks.language_results import SentenceScore, TokenScore
from service.server.app import create_app
from service.settings import Settings


@pytest.fixture(scope="module")
def client(sparse_export, wait_until):
    models = sparse_export.path.parents[1]
    with TestClient(create_app(Settings(model_dirs=(models,), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def library(sparse_export):
    return load_bundle(sparse_export.path, threads=1)


def _results(response):
    """What strict JSON makes of the answer: `Infinity` and `NaN` are none."""
    assert response.status_code == 200, response.text

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(response.text, parse_constant=refuse)["results"]


def test_next_words_are_possible_ones(client, library):
    contexts = ["", "One", "Two cats", "zzz"]
    answers = _results(client.post("/v1/next-word", json={"context": contexts, "top_k": library.vocab_size}))
    for answer, expected in zip(answers, library.next_words(contexts, library.vocab_size), strict=True):
        assert [word["word"] for word in answer["words"]] == [word.word for word in expected.words]
        assert 4 <= len(answer["words"]) <= 8
        assert all(word["probability"] > 0 for word in answer["words"])
        assert sum(word["probability"] for word in answer["words"]) == pytest.approx(1, abs=1e-5)


def test_an_impossible_sentence_is_null(client, sparse_sentence):
    """A possible text of the same request has finite numbers."""
    texts = [sparse_sentence, "now now . two One"]
    possible, impossible = _results(client.post("/v1/score", json={"text": texts}))
    assert possible["log_probability"] < 0
    assert possible["perplexity"] >= 1
    assert all(token["log_probability"] <= 0 for token in possible["tokens"])
    assert (impossible["log_probability"], impossible["perplexity"]) == (None, None)
    values = [token["log_probability"] for token in impossible["tokens"]]
    assert len(values) == 6
    assert None in values


def test_the_schema_says_so(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name, fields in (("Token", ["log_probability"]), ("ScoreResult", ["log_probability", "perplexity"])):
        for field in fields:
            assert {"type": "null"} in schemas[name]["properties"][field]["anyOf"]
            assert field in schemas[name]["required"]


def test_measured_quality_is_shown(client):
    (model,) = client.get("/v1/models").json()["models"]
    assert {quality["metric"] for quality in model["quality"]} == {"coverage", "perplexity_of_covered"}


def test_no_answer_holds_an_infinity():
    """Whatever then writes the JSON."""
    tokens = (TokenScore("a", -1.0, False), TokenScore("b", -math.inf, False))
    answer = ScoreResult.model_validate(SentenceScore("a b", tokens))
    assert (answer.log_probability, answer.perplexity) == (None, None)
    assert [token.log_probability for token in answer.tokens] == [-1.0, None]
