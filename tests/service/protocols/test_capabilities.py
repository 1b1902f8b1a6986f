"""Abilities that a model lacks are neither said nor accepted, in any protocol: rules, thresholds, functions, tools."""

import json
import shutil

import pytest
from fastapi.testclient import TestClient

from models import ModelStore
from service.server.app import create_app
from service.settings import BUNDLED, Settings

MULTI_LABEL = {"out_of_scope": None, "threshold": 0.5, "independent": True}
KINDS = {
    "ruled": ("intents", {}),
    "plain": ("intents", {"classes": {"out_of_scope": None}}),
    "several": ("intents", {"classes": MULTI_LABEL}),
    "rated": ("de-en", {}),
    "unrated": ("de-en", {"low_confidence": None}),
}
"""Models of each kind, as changes of the manifest of a bundled one."""
TEXT = "play some music"


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """A directory of these models."""
    found = tmp_path_factory.mktemp("kinds")
    for name, (bundled, changes) in KINDS.items():
        bundle = shutil.copytree(ModelStore(BUNDLED).path(bundled), found / name / "1")
        manifest = json.loads((bundle / "manifest.json").read_text())
        config = manifest["config"]
        for field, value in changes.items():
            config[field] = {**config[field], **value} if isinstance(value, dict) else value
        (bundle / "manifest.json").write_text(json.dumps({**manifest, "name": name, "version": 1}))
    return found


@pytest.fixture(scope="module")
def client(kinds, wait_until):
    settings = Settings(model_dirs=(kinds,), threads=1, protocols="native,oip,hf,mcp")
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def outputs(client, name):
    described = client.get(f"/v2/models/{name}").json()["outputs"]
    configured = client.get(f"/v2/models/{name}/config").json()["output"]
    assert [each["name"] for each in described] == [each["name"] for each in configured]
    return [each["name"] for each in described]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ruled", ["label", "probability", "out_of_scope"]),
        ("plain", ["label", "probability"]),
        ("several", ["label", "probability"]),
        ("rated", ["translation", "score", "low_confidence"]),
        ("unrated", ["translation", "score", "low_confidence"]),
    ],
)
def test_open_inference_has_the_outputs_that_a_model_has(client, name, expected):
    assert outputs(client, name) == expected
    text = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["Guten Morgen"]}
    found = client.post(f"/v2/models/{name}/infer", json={"inputs": [text]}).json()["outputs"]
    assert [each["name"] for each in found] == expected
    for output in ("out_of_scope", "low_confidence"):
        answer = client.post(f"/v2/models/{name}/infer", json={"inputs": [text], "outputs": [{"name": output}]})
        assert answer.status_code == (200 if output in expected else 400)


@pytest.mark.parametrize(("name", "said"), [("ruled", True), ("plain", False), ("several", False)])
def test_out_of_scope_is_said_by_models_that_can_tell(client, name, said):
    (result,) = client.post("/v1/classify", json={"text": TEXT, "model": name}).json()["results"]
    assert ("out_of_scope" in result) == said


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rated", "Guten Morgen!", False),
        ("unrated", "Guten Morgen!", False),
        ("unrated", "This is an English sentence, and not a German one.", True),
        ("unrated", "Der Winkel α ist groß.", True),
    ],
)
def test_low_confidence_needs_no_threshold(client, name, text, said):
    (result,) = client.post("/v1/translate", json={"text": text, "model": name}).json()["results"]
    assert result["low_confidence"] == said


@pytest.mark.parametrize(
    ("name", "function", "status"),
    [
        ("ruled", None, 200),
        ("ruled", "softmax", 200),
        ("ruled", "sigmoid", 422),
        ("ruled", "none", 422),
        ("several", None, 200),
        ("several", "sigmoid", 200),
        ("several", "softmax", 422),
        ("several", "none", 422),
        ("several", "relu", 422),
    ],
)
def test_hugging_face_applies_the_function_that_is_asked_for_or_refuses(client, name, function, status):
    parameters = {"top_k": 3} if function is None else {"top_k": 3, "function_to_apply": function}
    answer = client.post(f"/hf/{name}", json={"inputs": TEXT, "parameters": parameters})
    assert answer.status_code == status
    if status == 422:
        assert "must be 'so" in answer.json()["error"] or "must be 'si" in answer.json()["error"]


def test_hugging_face_does_not_accept_what_translation_does_not_do(client):
    body = {"inputs": "Guten Morgen!", "parameters": {"clean_up_tokenization_spaces": True}}
    assert client.post("/hf/rated", json=body).status_code == 422


@pytest.fixture
def call(client):
    def answer(method, **parameters):
        content = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        found = client.post("/mcp", json=content, headers={"Accept": "application/json, text/event-stream"})
        return found.json()["result"]

    return answer


def test_tools_of_operations_that_no_model_offers_are_not_listed(call):
    listed = {tool["name"] for tool in call("tools/list")["tools"]}
    assert listed == {"translate-text", "get-source-languages", "get-target-languages", "classify"}
