"""Tests of Text Embeddings Inference's API, which has no client of its own, and of classification for protocols."""

import pytest
from fastapi.testclient import TestClient

from models.store import load_bundle
from service.server.app import create_app
from service.settings import Settings

TEXTS = ["walk the dog", "buy some milk"]


@pytest.fixture(scope="module")
def client(errands_export, wait_until):
    with TestClient(create_app(Settings(model_dirs=(errands_export.path.parents[1],), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def expected(errands_export):
    model = load_bundle(errands_export.path, threads=1)
    return [
        [{"score": pytest.approx(each.probability, abs=1e-5), "label": each.label} for each in found.labels]
        for found in model.classify(TEXTS, len(model.labels))
    ]


def predict(client, inputs, **fields):
    return client.post("/predict", json={"inputs": inputs, **fields})


def test_a_text_a_list_of_one_and_a_batch(client, expected):
    assert predict(client, TEXTS[0]).json() == expected[0]
    assert predict(client, TEXTS[:1]).json() == expected[0]
    assert predict(client, [[text] for text in TEXTS]).json() == expected
    scores = [each["score"] for each in predict(client, TEXTS[0]).json()]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("inputs", "fields", "status", "kind"),
    [
        ([], {}, 400, "Empty"),
        ([[]], {}, 400, "Empty"),
        (TEXTS, {}, 422, "Validation"),
        ([TEXTS], {}, 422, "Validation"),
        (5, {}, 422, "Validation"),
        (TEXTS[0], {"raw_scores": True}, 422, "Validation"),
        ("word " * 5000, {}, 422, "Validation"),
    ],
)
def test_refusals_are_in_its_form(client, inputs, fields, status, kind):
    answer = predict(client, inputs, **fields)
    assert answer.status_code == status
    assert answer.json()["error_type"] == kind


def test_a_long_text_can_be_cut(client):
    assert predict(client, "walk " * 5000, truncate=True).status_code == 200


def test_information_names_the_classes(client, errands_export):
    info = client.get("/info").json()
    labels = load_bundle(errands_export.path, threads=1).labels
    assert info["model_id"] == errands_export.path.parent.name
    assert list(info["model_type"]["classifier"]["label2id"]) == list(labels)
    assert info["max_input_length"] > 0
    assert client.get("/health").json() == {"status": "ok"}


def test_without_a_classifier_there_is_none_to_ask(tiny_bundle, wait_until):
    with TestClient(create_app(Settings(model_dirs=(tiny_bundle.parents[1],), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        for answer in (predict(client, "walk"), client.get("/info")):
            assert (answer.status_code, answer.json()["error_type"]) == (404, "Validation")


def test_sizes_are_bounded(errands_export, wait_until):
    settings = Settings(model_dirs=(errands_export.path.parents[1],), threads=1, max_result_items=10)
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        answer = predict(client, [[text] for text in TEXTS * 100])
        assert (answer.status_code, answer.json()["error_type"]) == (422, "Validation")
