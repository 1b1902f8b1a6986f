"""Tests of `POST /v1/classify`: its answers, and the errors for invalid requests."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fastapi.testclient import TestClient

from models.store import load_bundle
from service.server.app import create_app
from service.settings import Settings

WRONG_FIELDS = [
    ({}, "give either text or image"),
    ({"text": None}, "give either text or image"),
    ({"text": []}, "text: "),
    ({"text": ["walk", 5]}, "text.1: "),
    ({"text": "\ud800"}, "text.0: the text holds half of a surrogate pair"),
    ({"text": "walk", "top_k": 0}, "top_k: "),
    ({"text": "walk", "top_k": "5"}, "top_k: "),
    ({"text": "walk", "top_k": True}, "top_k: "),
    ({"text": "walk", "truncate": "no"}, "truncate: "),
    ({"text": "walk", "image": ""}, "give either text or image"),
    ({"text": "walk", "context": "a"}, "context: unknown field (known: "),
    ({"text": "walk", "model": 5}, "model: "),
]


@pytest.fixture(scope="module")
def client(errands_export, wait_until):
    with TestClient(create_app(Settings(model_dirs=(errands_export.path.parents[1],), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def library(errands_export):
    return load_bundle(errands_export.path, threads=1)


def classify(client, **body):
    return client.post("/v1/classify", json=body)


def results(response):
    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_constant=pytest.fail)["results"]


def assert_same(answers, expected):
    for answer, theirs in zip(answers, expected, strict=True):
        assert answer["text"] == theirs.text
        assert [each["label"] for each in answer["labels"]] == [each.label for each in theirs.labels]
        probabilities = [each.probability for each in theirs.labels]
        assert [each["probability"] for each in answer["labels"]] == pytest.approx(probabilities, abs=1e-6, rel=1e-4)


def test_one_text_and_several_have_the_same_form(client, library):
    texts = ["could you please fry", "", "strum \N{ROBOT FACE} 你好\0", "[SEP]"]
    assert_same(results(classify(client, text=texts)), library.classify(texts))
    assert_same(results(classify(client, text=texts[0])), library.classify(texts[:1]))


def test_the_answer_says_which_model_gave_it(client):
    answer = classify(client, text="walk", top_k=1).json()
    assert (answer["model"], answer["version"]) == ("errands", 1)
    assert [each["label"] for each in answer["results"][0]["labels"]] == ["walk"]


def test_classes_of_probability_0_are_left_out(client):
    (answer,) = results(classify(client, text="walk", top_k=10**30))
    assert len(answer["labels"]) == 4
    assert all(each["probability"] > 0 for each in answer["labels"])
    assert math.isclose(sum(each["probability"] for each in answer["labels"]), 1, rel_tol=1e-5)


def test_many_clients_get_their_own_answers(client, library):
    texts = [
        f"{'please ' * (index % 15)}{word} {'now ' * (index % 3)}" for index in range(40) for word in ("hum", "fry")
    ]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda text: results(classify(client, text=text))[0], texts))
    assert_same(answers, library.classify(texts))


@pytest.mark.parametrize(("body", "detail"), WRONG_FIELDS)
def test_wrong_fields_are_named(client, body, detail):
    # Not with the client's own serializer, which refuses lone surrogates.
    response = client.post("/v1/classify", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert detail in response.json()["detail"]


@pytest.mark.parametrize("text", ["walk " * 100, "walk " * 10_000])
def test_long_texts_are_refused_or_cut(client, text):
    response = classify(client, text=text)
    assert response.status_code == 422
    assert "the model's limit is" in response.json()["detail"]
    cut, whole = results(classify(client, text=[text, "walk"], truncate=True))
    assert cut["labels"][0]["label"] == "walk"
    assert cut["truncated"] == pytest.approx(text.count("walk") - 22, rel=0.01)
    assert "truncated" not in whole


def test_a_model_of_another_task_is_unknown_here(client):
    response = client.post("/v1/next-word", json={"context": "walk", "model": "errands"})
    assert response.status_code == 404
    assert classify(client, text="walk", model="nobody").status_code == 404


def test_the_model_is_listed_with_its_quality(client):
    (model,) = client.get("/v1/models").json()["models"]
    assert model["task"] == "text-classification"
    assert model["classes"] == 8
    assert model["quality"][0]["metric"] == "accuracy"


def test_batches_are_counted(client):
    results(classify(client, text=["walk", "hum"]))
    assert 'softserve_batch_items_count{model="errands",version="1"}' in client.get("/metrics").text


# ---- calibration and prediction sets -------------------------------------------------------------


def test_a_coverage_returns_a_prediction_set(client, library):
    (answer,) = results(classify(client, text="walk", coverage=0.8))
    (expected,) = library.classify(["walk"], coverage=0.8)
    assert [each["label"] for each in answer["labels"]] == [each.label for each in expected.labels]
    assert answer["calibration_examples"] == library.config.classes.prediction_sets.examples
    assert "calibration_examples" not in results(classify(client, text="walk"))[0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"coverage": 0.9999}, "needs 9999 calibration examples"),
        ({"coverage": 0.8, "calibration": "none"}, "either coverage or calibration"),
        ({"randomized": True}, "need a coverage"),
    ],
)
def test_a_coverage_that_is_out_of_reach_is_refused(client, fields, said):
    answer = classify(client, text="walk", **fields)
    assert answer.status_code == 422
    assert said in answer.text


def test_raw_probabilities_are_those_of_the_output_layer(client, library):
    (answer,) = results(classify(client, text="walk", top_k=100, calibration="none"))
    rows = np.exp(library.log_probabilities(["walk"])[0, : len(library.labels)])
    assert {each["label"]: each["probability"] for each in answer["labels"]} == pytest.approx(
        {label: value for label, value in zip(library.labels, rows, strict=True) if value > 0}
    )
