"""Image classifiers over Open Inference: files in, classes out."""

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient

from models.store import load_bundle
from service.server.app import create_app
from service.settings import Settings
from tests.fixtures.images import LABELS, file_of, shape


@pytest.fixture(scope="module")
def client(shapes_export, wait_until):
    with TestClient(create_app(Settings(model_dirs=(shapes_export.path.parents[1],), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def infer(client, *images, **fields):
    content = b"".join(len(each).to_bytes(4, "little") + each for each in images)
    tensor = {
        "name": "image",
        "shape": [len(images)],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(content)},
    }
    head = json.dumps({"inputs": [tensor], **fields}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return client.post("/v2/models/shapes/infer", content=head + content, headers=headers)


def test_images_get_their_classes(client, shapes_export):
    generator = np.random.default_rng(1)
    images = [file_of(shape(label, generator)) for label in LABELS]
    expected = load_bundle(shapes_export.path, threads=1).classify(images, 2)
    answer = infer(client, *images, parameters={"top_k": 2}).json()
    label, probability = answer["outputs"]
    assert label["data"] == [each.label for one in expected for each in one.labels]
    assert probability["data"] == pytest.approx([each.probability for one in expected for each in one.labels], rel=1e-4)
    outputs = [{"name": "probability", "parameters": {"classification": 1}}]
    (found,) = infer(client, images[0], outputs=outputs).json()["outputs"]
    assert found["data"][0].endswith(f":{expected[0].labels[0].label}")


def test_what_is_no_image_is_refused(client):
    for images, detail in (
        ([b"x"], "neither a PNG nor a JPEG"),
        ([file_of(np.zeros((300, 300, 3), np.uint8))], "limit"),
    ):
        answer = infer(client, *images)
        assert answer.status_code == 422
        assert detail in answer.json()["error"]


def test_the_input_is_described(client):
    found = client.get("/v2/models/shapes").json()
    assert [(each["name"], each["datatype"]) for each in found["inputs"]] == [("image", "BYTES")]
    assert client.get("/v2/models/shapes.tokens").status_code == 404
