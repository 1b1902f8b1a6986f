"""Tests of the operation `tag` over HTTP, by other protocols, and on the command line."""

import csv
import json

import pytest
from fastapi.testclient import TestClient

from models.store import load_bundle
from models.tasks.token_classification import TAG
from service.offline.asked import Asked
from service.offline.options import FileOptions, ModelOptions
from service.offline.running import run_texts
from service.server.app import create_app
from service.settings import Settings

TEXTS = ["Hello, I want Monday", "", "Please call me"]
LONG = "Please call me on Monday morning. " * 10


@pytest.fixture(scope="module")
def client(tagger_bundle, wait_until):
    settings = Settings(model_dirs=(tagger_bundle.parents[1],), threads=1, protocols="native,oip,hf,mcp")
    with TestClient(create_app(settings), base_url="http://127.0.0.1:8000") as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def library(tagger_bundle):
    return load_bundle(tagger_bundle, threads=1)


def plain(tagging):
    names = ("label", "start", "end", "text", "score")
    return [{name: getattr(each, name) for name in names} for each in tagging.entities]


def approximately(entities):
    return [{**each, "score": pytest.approx(each["score"], abs=1e-5)} for each in entities]


@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "average", "max"])
def test_entities(client, library, aggregation):
    found = client.post("/v1/tag", json={"text": TEXTS, "aggregation": aggregation}).json()
    assert (found["model"], found["version"]) == ("names", 1)
    for text, answer, expected in zip(TEXTS, found["results"], library.tag(TEXTS, aggregation), strict=True):
        assert answer == {"text": text, "entities": approximately(plain(expected))}
    assert found["results"][0]["entities"]
    assert found["results"][1]["entities"] == []


def test_places_are_those_of_the_text_as_sent(client):
    text = " 🙂 Straße\r\n please Monday"
    (found,) = client.post("/v1/tag", json={"text": text, "aggregation": "none", "ignore_labels": []}).json()["results"]
    assert found["entities"][-1]["text"].endswith("y")
    for each in found["entities"]:
        assert text[each["start"] : each["end"]] == each["text"]


def test_long_texts(client, library):
    refused = client.post("/v1/tag", json={"text": LONG})
    assert refused.status_code == 422
    assert "the model's limit is 48" in refused.json()["detail"]
    (cut,) = client.post("/v1/tag", json={"text": LONG, "truncate": True}).json()["results"]
    assert cut["truncated"] > 0
    (whole,) = client.post("/v1/tag", json={"text": LONG, "overlap": 8}).json()["results"]
    assert whole["entities"] == approximately(plain(library.tag([LONG], overlap=8)[0]))
    assert whole["entities"][-1]["end"] > len(LONG) - 3
    assert "truncated" not in whole


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"aggregation": "best"}, "aggregation: "),
        ({"ignore_labels": "O"}, "ignore_labels: "),
        ({"ignore_labels": ["O"] * 1001}, "ignore_labels: "),
        ({"min_score": 1.5}, "min_score: "),
        ({"overlap": -1}, "overlap: "),
        ({"overlap": 46}, "overlap must be from 0 to 45, not 46"),
        ({"overlap": 1, "truncate": True}, "give either overlap or truncate"),
        ({"overlap": 1, "aggregation": "none"}, "an overlap needs an aggregation"),
        ({"overlap": 45, "text": "Please call me on Monday. " * 20_000}, "with this overlap"),
        ({"top_k": 1}, "top_k: unknown field"),
    ],
)
def test_wrong_requests(client, wrong, message):
    refused = client.post("/v1/tag", json={"text": "a", **wrong})
    assert refused.status_code == 422
    assert message in refused.text


def test_the_model_list_and_the_description(client):
    (model,) = client.get("/v1/models").json()["models"]
    assert (model["task"], model["operations"], model["labels"]) == ("token-classification", ["tag"], 13)
    document = client.get("/openapi.json").json()
    request = document["components"]["schemas"]["TagRequest"]["properties"]
    assert set(request["aggregation"]["enum"]) == {"none", "simple", "first", "average", "max"}
    assert request["ignore_labels"]["default"] == ["O"]
    assert "EntityResult" in document["components"]["schemas"]


def test_hugging_face_inference(client, library):
    names = ("entity_group", "start", "end", "word", "score")
    elements = [dict(zip(names, each.values(), strict=True)) for each in plain(library.tag(TEXTS[:1])[0])]
    found = client.post("/hf/names", json={"inputs": TEXTS[0]}).json()
    assert found == approximately(elements)
    several = client.post("/hf/names", json={"inputs": TEXTS}).json()
    assert (several[0], several[1], len(several)) == (found, [], 3)
    parameters = {"aggregation_strategy": "none", "ignore_labels": []}
    tokens = client.post("/hf/names", json={"inputs": TEXTS[0], "parameters": parameters}).json()
    assert [each["entity"] for each in tokens] == [
        each.label for each in library.tag(TEXTS[:1], "none", ignore_labels=())[0].entities
    ]
    assert client.post("/hf/names", json={"inputs": LONG}).status_code == 422
    whole = client.post("/hf/names", json={"inputs": LONG, "parameters": {"stride": 8}}).json()
    assert len(whole) == len(library.tag([LONG], overlap=8)[0].entities)
    assert client.post("/hf/names", json={"inputs": "a", "parameters": {"top_k": 1}}).status_code == 422


def test_open_inference(client, library):
    described = client.get("/v2/models/names").json()
    assert {(each["name"], each["datatype"]) for each in described["outputs"]} == {
        ("label", "BYTES"),
        ("start", "INT64"),
        ("end", "INT64"),
        ("entity", "BYTES"),
        ("score", "FP32"),
    }
    tensor = {"name": "text", "shape": [3], "datatype": "BYTES", "data": TEXTS}
    body = {"inputs": [tensor], "parameters": {"aggregation": "first"}}
    answer = client.post("/v2/models/names/infer", json=body).json()
    outputs = {each["name"]: (each["shape"], each["data"]) for each in answer["outputs"]}
    expected = library.tag(TEXTS, "first")
    width = max(len(each.entities) for each in expected)
    for name, fill in (("label", ""), ("start", 0), ("end", 0)):
        rows = [[getattr(entity, name) for entity in each.entities] for each in expected]
        padded = [value for row in rows for value in (*row, *[fill] * (width - len(row)))]
        assert outputs[name] == ([3, width], padded)


def test_model_context_protocol(client, library):
    content = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "tag", "arguments": {"text": TEXTS[0], "ignore_labels": ["MISC"]}},
    }
    found = client.post("/mcp", json=content, headers={"Accept": "application/json, text/event-stream"}).json()
    (expected,) = library.tag(TEXTS[:1], ignore_labels=["MISC"])
    assert found["result"]["structuredContent"]["entities"] == approximately(plain(expected))


def test_the_command_writes_a_row_for_each_entity(tagger_bundle, library, tmp_path):
    model = ModelOptions(model_dirs=(tagger_bundle.parents[1],), threads=1)
    for form in ("csv", "jsonl"):
        files = FileOptions(output=tmp_path / f"out.{form}", format=form)
        assert run_texts(Asked.of(TAG, {}), TEXTS, model, files) == 0
    expected = library.tag(TEXTS)
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        rows = [(row["line"], row["label"], row["start"], row["end"], row["text"]) for row in csv.DictReader(file)]
    assert rows == [
        (str(line), each.label, str(each.start), str(each.end), each.text)
        for line, tagging in enumerate(expected, 1)
        for each in tagging.entities
    ]
    lines = map(json.loads, (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines())
    assert [len(line["entities"]) for line in lines] == [len(each.entities) for each in expected]
