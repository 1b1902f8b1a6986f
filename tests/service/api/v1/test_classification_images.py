"""Tests of `POST /v1/classify` with images."""

import base64

import numpy as np
import pytest
from fastapi.testclient import TestClient

from models.store import load_bundle
from service.server.app import create_app
from service.settings import Settings
from tests.fixtures.images import LABELS, file_of, shape


@pytest.fixture(scope="module")
def client(errands_export, shapes_export, wait_until):
    directories = tuple(export.path.parents[1] for export in (errands_export, shapes_export))
    with TestClient(create_app(Settings(model_dirs=directories, threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def _base64(image):
    return base64.b64encode(image).decode()


def test_images_get_their_classes(client, shapes_export):
    generator = np.random.default_rng(1)
    images = [file_of(shape(label, generator)) for label in LABELS]
    expected = load_bundle(shapes_export.path, threads=1).classify(images)
    response = client.post("/v1/classify", json={"image": list(map(_base64, images))})
    assert response.status_code == 200
    answer = response.json()
    assert (answer["model"], answer["version"]) == ("shapes", 1)
    for found, theirs in zip(answer["results"], expected, strict=True):
        assert list(found) == ["labels"]
        assert [each["label"] for each in found["labels"]] == [each.label for each in theirs.labels]
        probabilities = [each.probability for each in theirs.labels]
        assert [each["probability"] for each in found["labels"]] == pytest.approx(probabilities, rel=1e-4)


def test_texts_and_images_find_the_model_of_their_kind(client):
    assert client.post("/v1/classify", json={"text": "walk"}).json()["model"] == "errands"
    assert client.post("/v1/classify", json={"text": "walk", "model": "shapes"}).status_code == 404


@pytest.mark.parametrize(
    ("image", "detail"),
    [
        ("", "neither a PNG nor a JPEG"),
        ("not base64!", "the image is not base64"),
        ("äöü", "the image is not base64"),
        (_base64(b"hello"), "neither a PNG nor a JPEG"),
        (_base64(file_of(np.zeros((300, 300, 3), np.uint8))), "90000 pixels; the model's limit is 10000"),
        (_base64(file_of(np.zeros((8, 8, 3), np.uint8), "GIF")), "neither a PNG nor a JPEG"),
    ],
)
def test_rubbish_is_refused_and_other_requests_go_on(client, image, detail):
    response = client.post("/v1/classify", json={"image": [image]})
    assert response.status_code == 422
    assert detail in response.json()["detail"]
    fine = _base64(file_of(np.zeros((8, 8, 3), np.uint8)))
    assert client.post("/v1/classify", json={"image": fine}).status_code == 200


def test_many_large_images_in_few_bytes_do_not_delay_other_requests(errands_export, shapes_export, wait_until):
    """Their time counts against the deadline, and more than could ever wait are refused before any is decoded."""
    black = _base64(file_of(np.zeros((99, 99, 3), np.uint8)))
    directories = tuple(export.path.parents[1] for export in (errands_export, shapes_export))
    with TestClient(create_app(Settings(model_dirs=directories, threads=1, max_queue_items=500))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/v1/classify", json={"image": [black] * 501}).status_code == 413
        response = client.post("/v1/classify", json={"image": [black] * 500}, headers={"X-Request-Timeout-Ms": "1"})
        assert response.status_code == 504
        assert client.post("/v1/classify", json={"text": "walk"}).status_code == 200


def test_a_model_of_images_is_listed(client):
    (model,) = client.get("/v1/models/shapes").json()["models"]
    assert (model["task"], model["vocab_size"], model["classes"]) == ("image-classification", None, 4)
    assert model["limits"]["max_pixels"] == 10_000
