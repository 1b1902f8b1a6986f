"""Texts on which the tokenizer of a bundle panics: every protocol answers 500, and the log has a line for each."""

import contextlib
import hashlib
import json
import logging
import shutil
import urllib.error
import urllib.request

import grpc
import pytest
from fastapi.testclient import TestClient

from service.protocols.open_inference.grpc import open_inference_pb2 as messages
from service.server.app import create_app
from service.settings import BUNDLED, Settings

PANICS = "a" * 40 + "b"
"""A text on which Oniguruma gives up: the time of the pattern is exponential."""
PATTERN = {"type": "Split", "pattern": {"Regex": "^(a+)+$"}, "behavior": "Isolated", "invert": False}
FAILURE = "the tokenizer failed: PanicException: Onig: Regex search error: retry-limit-in-match over"


def panicking(source, target):
    """Copy a bundle, with a pattern before those of its tokenizer."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.cuda.onnx"))
    manifest, tokenizer = target / "manifest.json", target / "tokenizer.json"
    content = json.loads(tokenizer.read_text())
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [PATTERN, content["pre_tokenizer"]]}
    tokenizer.write_text(json.dumps(content))
    described = json.loads(manifest.read_text())
    for graph in described["graphs"].values():
        graph.pop("devices", None)
    described["files"] = {name: digest for name, digest in described["files"].items() if (target / name).is_file()}
    described["files"]["tokenizer.json"] = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(described))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    for source in BUNDLED.glob("*/*"):
        panicking(source, directory / source.parent.name / source.name)
    return directory


@pytest.fixture(scope="module")
def client(models, wait_until):
    with TestClient(create_app(Settings(threads=1, model_dirs=(models,), grpc_port=0))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def tensor(text):
    return {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}]}


@pytest.fixture
def logged(caplog):
    """The lines of the service's log, all of them without a traceback."""
    caplog.set_level(logging.INFO, logger="softserve")

    def lines():
        assert [record.exc_info for record in caplog.records] == [None] * len(caplog.records)
        return [record.getMessage() for record in caplog.records if record.name == "softserve"]

    return lines


@pytest.mark.parametrize(
    ("path", "body", "model"),
    [
        ("/v1/classify", {"text": PANICS}, "intents"),
        ("/v1/classify", {"text": ["a table"] * 70 + [PANICS]}, "intents"),  # prepared on a thread
        ("/v1/score", {"text": PANICS}, "next-word"),
        ("/v1/next-word", {"context": PANICS}, "next-word"),
        ("/v1/translate", {"text": PANICS}, "de-en"),
    ],
)
def test_the_native_endpoints_answer_with_a_problem(client, detail_of, logged, path, body, model):
    assert detail_of(client.post(path, json=body), 500) == FAILURE
    assert logged() == [f"{model}: {FAILURE}"]
    fine = dict.fromkeys(body, "Ja")
    assert client.post(path, json=fine).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v2/models/intents/infer", tensor(PANICS), 500, lambda answer: answer["error"]),
        ("/predict", {"inputs": PANICS}, 424, lambda answer: answer["error"]),
        ("/v2/translate", {"text": [PANICS], "target_lang": "EN"}, 500, lambda answer: answer["message"]),
        ("/translate", {"q": PANICS, "source": "de", "target": "en"}, 500, lambda answer: answer["error"]),
        ("/v1/completions", {"model": "next-word", "prompt": PANICS}, 500, lambda answer: answer["error"]["message"]),
        ("/tokenize", {"model": "next-word", "prompt": PANICS}, 500, lambda answer: answer["error"]["message"]),
    ],
)
def test_other_protocols_answer_in_their_own_form(client, logged, metric, path, body, status, message):
    counted = metric(client, "softserve_requests_total", status="500")
    response = client.post(path, json=body)
    assert (response.status_code, message(response.json())) == (status, FAILURE)
    assert len(logged()) == 1
    assert metric(client, "softserve_requests_total", status="500") == counted + 1  # also where the answer has 424


def test_grpc(models, wait_until, logged, metric):
    with TestClient(create_app(Settings(threads=1, model_dirs=(models,), models=("intents",), grpc_port=0))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        (line,) = [line for line in logged() if line.startswith("gRPC")]
        request = messages.ModelInferRequest(model_name="intents")
        contents = request.inputs.add(name="text", datatype="BYTES", shape=[1]).contents
        contents.bytes_contents.append(PANICS.encode())
        with grpc.insecure_channel(f"127.0.0.1:{line.rpartition(':')[2]}") as channel:
            infer = channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer",
                lambda each: each.SerializeToString(),
                messages.ModelInferResponse.FromString,
            )
            with pytest.raises(grpc.RpcError) as raised:
                infer(request, timeout=30)
            assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.INTERNAL, FAILURE)
            assert logged()[-1] == f"intents: {FAILURE}"
            labels = {"model": "intents", "endpoint": "/inference.GRPCInferenceService/ModelInfer"}
            assert metric(client, "softserve_requests_total", status="500", **labels) == 1
            contents.bytes_contents[0] = b"book a table"
            assert infer(request, timeout=30).raw_output_contents


def test_a_process_goes_on_and_prints_no_backtrace(models, start, wait_until, monkeypatch):
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    process = start("--model-dirs", models, "--models", "next-word:4")
    wait_until(process.ready)
    before = len(process.text.splitlines())
    for _ in range(2):
        with contextlib.suppress(urllib.error.HTTPError):
            process.post(PANICS)
    assert process.post("we had a very")
    new = [line for line in process.text.splitlines()[before:] if line]
    assert sum("ERROR softserve: next-word: the tokenizer failed" in line for line in new) == 2
    assert len(new) <= 7  # Rust prints two lines itself, and a note the first time
