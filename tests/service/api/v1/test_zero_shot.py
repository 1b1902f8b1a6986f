"""Tests of zero-shot classification over HTTP, by other protocols, and on the command line."""

import json

import pytest
from fastapi.testclient import TestClient

from models.store import BUNDLED, load_bundle
from models.tasks.text_classification import ZERO_SHOT
from service.offline.asked import Asked
from service.offline.options import FileOptions, ModelOptions
from service.offline.running import run_texts
from service.server.app import create_app
from service.settings import Settings

TEXTS = ["Where is my parcel?", "I want to cancel my order; please call me."]
LABELS = ["delivery", "an order", "one"]
LONG = "Please call me on Monday morning. " * 20


@pytest.fixture(scope="module")
def client(encoder_models, wait_until):
    settings = Settings(model_dirs=(encoder_models, BUNDLED), threads=1, protocols="native,oip,hf,mcp")
    with TestClient(create_app(settings), base_url="http://127.0.0.1:8000") as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def library(encoder_models):
    return load_bundle(encoder_models / "follows" / "1", threads=1)


def plain(result):
    return [{"label": each.label, "probability": pytest.approx(each.probability, abs=1e-5)} for each in result.labels]


@pytest.mark.parametrize(
    "options", [{}, {"multi_label": True}, {"template": "Is it {}?"}, {"labels": ["one"]}, {"labels": LABELS * 12}]
)
def test_labels_and_their_probabilities(client, library, options):
    options = {"labels": LABELS, **options}
    found = client.post("/v1/zero-shot", json={"text": TEXTS, **options}).json()
    assert (found["model"], found["version"]) == ("follows", 1)
    for text, answer, expected in zip(TEXTS, found["results"], library.zero_shot(TEXTS, **options), strict=True):
        assert answer == {"text": text, "labels": plain(expected)}


def test_long_texts(client, library):
    refused = client.post("/v1/zero-shot", json={"text": LONG, "labels": LABELS})
    assert refused.status_code == 422
    assert "in a pair; the model's limit is 128" in refused.json()["detail"]
    (cut,) = client.post("/v1/zero-shot", json={"text": LONG, "labels": LABELS, "truncate": True}).json()["results"]
    (expected,) = library.zero_shot([LONG], LABELS, truncate=True)
    assert (cut["labels"], cut["truncated"]) == (plain(expected), expected.truncated)
    assert cut["truncated"] > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": []}, "labels are missing"),
        ({"labels": None}, "labels: "),
        ({"labels": "one, two"}, "labels: "),
        ({"labels": [""]}, "labels.0: must have "),
        ({"labels": ["a" * 1001]}, "labels.0: must have "),
        ({"labels": ["a"] * 101}, "labels: "),
        ({"labels": ["a"], "template": "no label"}, "template must have {} once"),
        ({"labels": ["a"], "template": "{}" * 501}, "template: "),
        ({"labels": ["a"], "multi_label": "perhaps"}, "multi_label: "),
        ({"labels": ["a"], "text": " "}, "the text is empty"),
        ({"labels": ["a"], "top_k": 1}, "top_k: unknown field"),
    ],
)
def test_wrong_requests(client, wrong, message):
    refused = client.post("/v1/zero-shot", json={"text": "a", **wrong})
    assert refused.status_code == 422
    assert message in refused.text


def test_a_request_without_labels(client):
    refused = client.post("/v1/zero-shot", json={"text": "a"})
    assert (refused.status_code, "labels are missing" in refused.text) == (422, True)


def test_more_hypotheses_than_may_wait_are_refused(client):
    refused = client.post("/v1/zero-shot", json={"text": ["a b"] * 200, "labels": ["one"] * 100})
    assert refused.status_code == 413
    assert "more texts or tokens than the queue" in refused.json()["detail"]


def test_only_models_of_premise_and_hypothesis_offer_it(client):
    listed = {each["name"]: each["operations"] for each in client.get("/v1/models").json()["models"]}
    assert (listed["follows"], listed["intents"]) == (["classify", "zero-shot"], ["classify"])
    refused = client.post("/v1/zero-shot", json={"text": "a", "labels": ["b"], "model": "intents"})
    assert refused.status_code == 404
    assert "is for classify, not for zero-shot; models for zero-shot: follows:1" in refused.json()["detail"]
    assert "candidate" not in client.get("/v2/models/intents").text


def test_hugging_face_inference(client, library):
    parameters = {"candidate_labels": LABELS, "multi_label": True, "hypothesis_template": "Is it {}?"}
    expected = library.zero_shot(TEXTS, LABELS, "Is it {}?", multi_label=True)
    rows = [[{"label": each["label"], "score": each["probability"]} for each in plain(one)] for one in expected]
    assert client.post("/hf/follows", json={"inputs": TEXTS, "parameters": parameters}).json() == rows
    assert client.post("/hf/follows", json={"inputs": TEXTS[0], "parameters": parameters}).json() == rows[0]
    long = client.post("/hf/follows", json={"inputs": LONG, "parameters": {"candidate_labels": LABELS}})
    assert long.status_code == 200, "texts are truncated, as in the pipeline"
    for wrong in (
        {"candidate_labels": []},
        {"candidate_labels": ["a" * 1001]},
        {"candidate_labels": ["a"], "top_k": 1},
    ):
        assert client.post("/hf/follows", json={"inputs": "a", "parameters": wrong}).status_code == 422
    other = client.post("/hf/intents", json={"inputs": "a", "parameters": {"candidate_labels": ["b"]}})
    assert "is for classify, not for zero-shot" in other.json()["error"]


def test_open_inference(client, library):
    described = client.get("/v2/models/follows").json()
    assert {(each["name"], each["datatype"]) for each in described["outputs"]} >= {
        ("candidate", "BYTES"),
        ("candidate_probability", "FP32"),
    }
    body = {
        "inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": TEXTS}],
        "outputs": [{"name": "candidate"}, {"name": "candidate_probability"}],
        "parameters": {"labels": LABELS},
    }
    answer = client.post("/v2/models/follows/infer", json=body)
    assert answer.status_code == 200, answer.text
    outputs = {each["name"]: (each["shape"], each["data"]) for each in answer.json()["outputs"]}
    found = [each for result in library.zero_shot(TEXTS, LABELS) for each in result.labels]
    assert outputs["candidate"] == ([2, 3], [each.label for each in found])
    assert outputs["candidate_probability"][1] == pytest.approx([each.probability for each in found], abs=1e-5)


def test_model_context_protocol(client, library):
    content = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "zero-shot", "arguments": {"text": TEXTS[0], "labels": LABELS}},
    }
    found = client.post("/mcp", json=content, headers={"Accept": "application/json, text/event-stream"}).json()
    assert found["result"]["structuredContent"]["labels"] == plain(library.zero_shot(TEXTS[:1], LABELS)[0])


def test_the_command(encoder_models, library, tmp_path):
    model = ModelOptions(model_dirs=(encoder_models,), threads=1)
    files = FileOptions(output=tmp_path / "out.jsonl", format="jsonl")
    assert run_texts(Asked.of(ZERO_SHOT, {"labels": LABELS}), TEXTS, model, files) == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["labels"] for line in lines] == [plain(each) for each in library.zero_shot(TEXTS, LABELS)]
    table = FileOptions(output=tmp_path / "out.tsv", format="tsv")
    assert run_texts(Asked.of(ZERO_SHOT, {"labels": LABELS}), TEXTS, model, table) == 0
    first = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()[0].split("\t")
    assert (first[0], first[-1]) == (lines[0]["labels"][0]["label"], TEXTS[0])
