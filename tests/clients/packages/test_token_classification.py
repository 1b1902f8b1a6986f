"""huggingface_hub with an imported model of token classification: its entities are those of the pipeline."""

import json

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

TEXTS = ["Hello, I want to cancel my order on Monday.", "", "Wie komme ich nach Köln? 🙂"]
WRITE = """
import sys
from pathlib import Path
from tests.support.tagger_bundle import write_tagger
write_tagger(Path(sys.argv[1]))
"""
REFERENCE = """
import json, sys, transformers
found = []
for strategy in ("none", "simple", "first", "average", "max"):
    pipeline = transformers.pipeline("token-classification", model=sys.argv[1], aggregation_strategy=strategy)
    found.append([pipeline(text) for text in json.load(open(sys.argv[1] + "/texts.json"))])
print(json.dumps(found, default=float))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory, run_python):
    made = tmp_path_factory.mktemp("tagger")
    run_python(WRITE, made)
    (made / "hub" / "texts.json").write_text(json.dumps(TEXTS))
    return made


@pytest.fixture(scope="module")
def client(directory, tmp_path_factory, serving):
    log = tmp_path_factory.mktemp("tagger-server") / "log.txt"
    with serving(log, "--model-dirs", directory / "models", "--protocols", "native,hf") as server:
        yield InferenceClient(f"{server.address}/hf/names", provider="hf-inference")


def test_entities_are_those_of_the_pipeline(client, directory, run_python):
    expected = json.loads(run_python(REFERENCE, directory / "hub"))
    for strategy, rows in zip(("none", "simple", "first", "average", "max"), expected, strict=True):
        for text, row in zip(TEXTS, rows, strict=True):
            found = client.token_classification(text, aggregation_strategy=strategy)
            assert [(each.entity, each.entity_group, each.start, each.end) for each in found] == [
                (each.get("entity"), each.get("entity_group"), each["start"], each["end"]) for each in row
            ]
            assert [each.score for each in found] == pytest.approx([each["score"] for each in row], abs=1e-4)
            assert [each.word for each in found] == [text[each["start"] : each["end"]] for each in row]


def test_parameters(client):
    labels = {each.entity_group for each in client.token_classification(TEXTS[0])}
    ignored = labels.pop()
    found = client.token_classification(TEXTS[0], ignore_labels=["O", ignored])
    assert {each.entity_group for each in found} == labels
    text = TEXTS[0] * 20
    with pytest.raises(HfHubHTTPError) as refused:
        client.token_classification(text)
    assert refused.value.response.status_code == 422
    assert max(each.end for each in client.token_classification(text, stride=5)) > len(text) - 5
