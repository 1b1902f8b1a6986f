"""Tests of Open Inference over HTTP where `tritonclient` does not reach."""

import gzip
import json

import pytest
from fastapi.testclient import TestClient

from service.protocols.open_inference.served import inference_models
from service.server.app import create_app
from service.settings import Settings

KEY = "key-of-an-administrator"
INFER = "/v2/models/errands/infer"


def text(*texts, **fields):
    return {"inputs": [{"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": texts}], **fields}


@pytest.fixture(scope="module")
def client(errands_export, wait_until, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(KEY)
    settings = Settings(model_dirs=(errands_export.path.parents[1],), threads=1, admin_keys=keys)
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def error(response):
    """Return the status and the reason of a refusal in the protocol's form."""
    assert list(response.json()) == ["error"]
    return response.status_code, response.json()["error"]


def test_each_model_reads_texts_and_token_ids(client):
    models = inference_models(client.app.state.served_models.served.values())
    assert [(model.name, model.version) for model in models] == [("errands", "1"), ("errands.tokens", "1")]
    assert [spec.name for spec in models[0].outputs] == ["label", "probability", "out_of_scope"]
    assert client.get("/v2/models").json() == {"models": ["errands", "errands.tokens"]}


def test_a_version_may_be_named(client):
    assert client.post("/v2/models/errands/versions/1/infer", json=text("buy milk")).json()["model_version"] == "1"
    status, reason = error(client.post("/v2/models/errands/versions/2/infer", json=text("buy milk")))
    assert (status, "errands:1" in reason) == (404, True)


def test_labels_and_probabilities_are_those_of_the_native_endpoint(client):
    outputs = client.post(INFER, json=text("buy milk", "walk", parameters={"top_k": 2})).json()["outputs"]
    found = {output["name"]: output for output in outputs}
    native = client.post("/v1/classify", json={"text": ["buy milk", "walk"], "top_k": 2}).json()["results"]
    assert found["label"]["shape"] == [2, 2]
    assert found["label"]["data"] == [each["label"] for result in native for each in result["labels"]]
    probabilities = [each["probability"] for result in native for each in result["labels"]]
    assert found["probability"]["data"] == pytest.approx(probabilities, abs=1e-6)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": []}, "'text' is missing"),
        (text(), "empty"),
        (text("a", parameters={"top_k": 0}), "top_k must be"),
        (text("a", parameters={"top_k": True}), "top_k must be"),
        (text("a", parameters={"truncate": 1}), "truncate must be"),
        (text("a", parameters={"timeout": -1}), "timeout must be"),
        (text("a", parameters={"priority": "1"}), "priority must be"),
        (text("a", outputs=[{"name": "label", "parameters": {"classification": 1}}]), "has no classes"),
        (text("a", outputs=[{"name": "probability", "parameters": {"classification": -1}}]), "number of classes"),
        ({"inputs": [{"name": "text", "shape": [2, 2], "datatype": "BYTES", "data": ["a"] * 4}]}, "one dimension"),
    ],
)
def test_wrong_requests(client, body, message):
    status, reason = error(client.post(INFER, json=body))
    assert status == 400
    assert message in reason


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([("input_ids", [3], [1, 2, 3])], "two dimensions"),
        ([("input_ids", [1, 2], [1, -1])], "token ids must be from 0"),
        ([("input_ids", [1, 2], [1, 2]), ("lengths", [1], [3])], "from 0 to 2"),
        ([("input_ids", [1, 2], [1, 2]), ("lengths", [1], [0])], "at least one token"),
        ([("input_ids", [1, 1000], [1] * 1000)], "tokens"),
    ],
)
def test_wrong_token_ids(client, inputs, message):
    body = [{"name": name, "shape": shape, "datatype": "INT64", "data": data} for name, shape, data in inputs]
    response = client.post("/v2/models/errands.tokens/infer", json={"inputs": body})
    assert response.status_code in (400, 422)
    assert message in error(response)[1]


def test_a_deadline_in_microseconds(client):
    status, _ = error(client.post(INFER, json=text(*["buy milk and walk the dog"] * 60, parameters={"timeout": 1})))
    assert status in (429, 504)


def test_a_bomb_is_refused(client):
    bomb = gzip.compress(json.dumps(text("a" * (1 << 24))).encode())
    assert len(bomb) < 1 << 17
    assert error(client.post(INFER, content=bomb, headers={"Content-Encoding": "gzip"}))[0] == 413


def test_administrators_load_and_unload(client):
    call, headers = "/v2/repository/models/errands/", {"Authorization": f"Bearer {KEY}"}
    assert error(client.post(f"{call}load"))[0] == 401
    assert client.post(f"{call}load", headers=headers, json={"parameters": {}}).json() == {}
    assert error(client.post("/v2/repository/models/nothing/load", headers=headers))[0] == 404
    assert error(client.post(f"{call}unload"))[0] == 401
    assert client.post(INFER, json=text("buy milk")).status_code == 200


def test_paths_of_the_service_keep_their_errors(client):
    assert client.post("/v1/classify", json={}).headers["content-type"] == "application/problem+json"
    assert error(client.get("/v2/models/nothing"))[0] == 404
    assert error(client.get("/v2/nothing"))[0] == 404
    assert set(client.post("/v2/translate", json={}).json()) == {"message", "detail"}, "DeepL's"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
def test_answers_that_may_be_compressed_vary(client, encoding):
    answer = client.post(INFER, json=text("buy milk"), headers={"Accept-Encoding": encoding})
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers.get("content-encoding", "identity") == encoding
