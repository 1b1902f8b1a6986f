"""Tests of `POST /v1/rescore`: its ranking is that of the library, its limits are those of `/v1/score`."""

import json
import math

import pytest
from fastapi.testclient import TestClient

from models.decoding.rescoring import Hypothesis, Weights, rescored
from service.server.app import create_app
from service.settings import Settings

LIST = [
    {"text": "sea you tomorrow", "score": -4.1},
    {"text": "see you tomorrow", "score": -4.6},
    {"text": "see you to borrow", "score": -5.9},
]
OTHER = [{"text": "he has too dogs", "score": 1}, {"text": "he has two dogs"}]


@pytest.fixture(scope="module")
def client(wait_until):
    with TestClient(create_app(Settings(threads=1, max_queue_items=8, models=("next-word:4", "intents")))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def post(client, **body):
    return client.post("/v1/rescore", json=body)


def results(client, **body):
    response = post(client, **body)
    assert response.status_code == 200, response.text
    return response.json()["results"]


def test_a_list_is_ranked_as_by_the_library(client, library):
    (found,) = results(client, hypotheses=LIST, lm_weight=0.5, length_reward=0.25)
    values = [each.log_probability for each in library.score([each["text"] for each in LIST])]
    given = [Hypothesis(each["text"], each["score"]) for each in LIST]
    expected = rescored(given, values, Weights(lm_weight=0.5, length_reward=0.25))
    assert [each["place"] for each in found["hypotheses"]] == [each.place for each in expected] == [1, 0, 2]
    for one, other in zip(found["hypotheses"], expected, strict=True):
        assert one["text"] == other.text
        assert (one["score"], one["words"]) == (other.score, other.words)
        assert one["log_probability"] == pytest.approx(other.log_probability, abs=1e-4)
        assert one["total"] == pytest.approx(other.total, abs=1e-4)


def test_scores_and_weights_have_defaults(client):
    texts = [{"text": each["text"]} for each in LIST]
    (found,) = results(client, hypotheses=texts)
    for each in found["hypotheses"]:
        assert each["total"] == each["log_probability"]
        assert "truncated" not in each
    (found,) = results(client, hypotheses=LIST, lm_weight=0)
    assert [each["total"] for each in found["hypotheses"]] == [-4.1, -4.6, -5.9]


def test_several_lists_are_several_results(client):
    both = results(client, hypotheses=[LIST, OTHER], lm_weight=0.5)
    assert [len(each["hypotheses"]) for each in both] == [3, 2]
    for one, alone in zip(both, (LIST, OTHER), strict=True):
        (found,) = results(client, hypotheses=alone, lm_weight=0.5)
        assert [each["place"] for each in one["hypotheses"]] == [each["place"] for each in found["hypotheses"]]
    assert both[1]["hypotheses"][0]["text"] == "he has two dogs"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "hypotheses: is missing"),
        ({"hypotheses": []}, 422, "hypotheses: must have 1 or more items"),
        ({"hypotheses": [[]]}, 422, "hypotheses.0: must have 1 or more items"),
        ({"hypotheses": "a"}, 422, "hypotheses: must be a list"),
        ({"hypotheses": ["a"]}, 422, "hypotheses.0: must be an object"),
        ({"hypotheses": [{"score": 1}]}, 422, "hypotheses.0.text: is missing"),
        ({"hypotheses": [LIST, [{"text": "a", "score": "1"}]]}, 422, "hypotheses.1.0.score: must be a number"),
        ({"hypotheses": [LIST, LIST[0]]}, 422, "hypotheses.1: must be a list"),
        ({"hypotheses": [{"text": "a", "cost": 1}]}, 422, "hypotheses.0.cost: unknown field"),
        ({"hypotheses": [{"text": "\ud800"}]}, 422, "half of a surrogate pair"),
        ({"hypotheses": LIST, "lm_weight": -1}, 422, "lm_weight: must be at least 0"),
        ({"hypotheses": LIST, "length_reward": 1e7}, 422, "length_reward: must be at most"),
        ({"hypotheses": LIST, "other": 1}, 422, "other: unknown field"),
        ({"hypotheses": [{"text": "a " * 5000}]}, 422, "the model's limit is"),
        ({"hypotheses": [LIST, LIST, LIST]}, 413, "8"),
        ({"hypotheses": LIST, "model": "intents"}, 404, "is for classify, not for score"),
    ],
)
def test_what_is_refused(client, body, status, words):
    response = client.post(
        "/v1/rescore", content=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == status
    assert words in response.json()["detail"]


def test_numbers_are_finite(client):
    content = b'{"hypotheses": [{"text": "a", "score": 1e400}]}'
    response = client.post("/v1/rescore", content=content, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["detail"]) == (422, "hypotheses.0.score: must be a finite number")


def test_a_text_that_is_cut_says_so(client):
    (found,) = results(client, hypotheses=[{"text": "a " * 2000}, {"text": "a"}], truncate=True)
    short, long = found["hypotheses"]
    assert (short["text"], "truncated" in short) == ("a", False)
    assert long["truncated"] > 500
    assert long["words"] == 2000


def test_metrics_have_the_endpoint_and_the_model(client):
    results(client, hypotheses=LIST)
    line = 'softserve_requests_total{deadline="",endpoint="/v1/rescore",model="next-word",status="200"}'
    assert line in client.get("/metrics").text


def test_probability_0_is_null_and_last(sparse_export, sparse_sentence, wait_until):
    models = sparse_export.path.parents[1]
    with TestClient(create_app(Settings(model_dirs=(models,), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        texts = [{"text": "now now . two One", "score": 1}, {"text": "now now . two One", "score": 5}]
        (found,) = results(client, hypotheses=[*texts, {"text": sparse_sentence, "score": -50}])
        assert [each["place"] for each in found["hypotheses"]] == [2, 1, 0]
        assert [each["total"] for each in found["hypotheses"]][1:] == [None, None]
        assert found["hypotheses"][0]["total"] < -50
        assert math.isfinite(found["hypotheses"][0]["log_probability"])
