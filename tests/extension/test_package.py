"""A package from outside adds a task and a kernel: trained, exported, verified, loaded and served by the commands.

The package is installed as pip would: a folder on the path, with a `.dist-info` that declares its entry points.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe

from service.protocols.open_inference.grpc.open_inference_pb2 import ModelInferRequest, ModelInferResponse
from tests.fixtures.classification import ERRANDS_RECIPE, errand
from tests.fixtures.optional_tools import needs
from tests.service.web.browser import Playground, chromium
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
ENTRY_POINTS = """\
[softserve.models.tasks]
text-vector = softserve_embedding.model:EmbeddingModel
[softserve.training.tasks]
text-vector = softserve_embedding.training:EmbeddingTask
"""
RECIPE = {
    **ERRANDS_RECIPE,
    "name": "errand-vectors",
    "task": "text-vector",
    "data": {"files": {"train": "errands.tsv"}, "max_tokens": 24, "batch_tokens": 512},
    "output_layer": {"kernels": [{"name": "softserve_embedding.kernels:Cosine", "tau": 0.2}]},
    "loop": {**ERRANDS_RECIPE["loop"], "epochs": 4},
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that have the package installed."""
    site = tmp_path_factory.mktemp("site-packages")
    shutil.copytree(Path(__file__).parent / "package" / "softserve_embedding", site / "softserve_embedding")
    info = site / "softserve_embedding-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: softserve-embedding\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory, generator = tmp_path_factory.mktemp("data"), random.Random(0)
    lines = {errand(generator, "train") for _ in range(600)}
    (directory / "errands.tsv").write_text("\n".join(sorted(lines)) + "\n", encoding="utf-8")
    return directory


def command(installed: dict[str, str], *arguments: object) -> str:
    """Run a command of the project; return its output."""
    finished = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], env=installed, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


COMMANDS = """
import json, sys
import torch
from training import cli

torch.set_num_threads(1)
for sys.argv in json.load(sys.stdin):
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code:
            raise
    print("-- done")
"""


def exported(installed: dict[str, str], data_dir: Path, output: Path) -> str:
    """Train and export by the commands in one process; return the output of the export."""
    path, runs, common = data_dir / "errands.yaml", data_dir / "runs", ["--data-dir", str(data_dir)]
    path.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    calls = [
        ["", "run", str(path), *common, "--runs", str(runs), "--device", "cpu"],
        ["", "export", str(runs / str(RECIPE["name"])), *common, "--output", str(output)],
    ]
    finished = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input=json.dumps(calls),
        env=installed,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    _, of_export, _ = finished.stdout.split("-- done\n")
    return of_export


@pytest.fixture(scope="module")
def bundles(installed: dict[str, str], data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with an embedding that was trained with the outside kernel."""
    output = tmp_path_factory.mktemp("models")
    found = exported(installed, data_dir, output)
    assert "nearest neighbour on errands.tsv, held out, test: " in found
    assert "onnx: largest difference from eager" in found
    return output


@pytest.fixture(scope="module")
def server(installed: dict[str, str], bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the bundle, without the module of the kernel that it was trained with."""
    without = {**installed, "PYTHONPATH": installed["PYTHONPATH"]}
    site = Path(installed["PYTHONPATH"].split(os.pathsep)[0])
    (site / "softserve_embedding" / "kernels.py").unlink()
    port = free_port()
    protocols = ["--protocols", "native,oip,mcp", "--grpc-port", GRPC_PORT]
    serve = ["service.cli", "serve", "--port", port, "--model-dirs", bundles, "--threads", 1, *protocols]
    process = subprocess.Popen([sys.executable, "-m", *map(str, serve)], env=without, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            try:
                urllib.request.urlopen(f"{address}/readyz", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


GRPC_PORT = free_port()


def post(address: str, path: str, body: object) -> dict[str, object]:
    request = urllib.request.Request(
        f"{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        found: dict[str, object] = json.load(response)
    return found


def test_the_bundle_is_of_the_task_and_sound(installed: dict[str, str], bundles: Path) -> None:
    manifest = json.loads((bundles / "errand-vectors" / "1" / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["task"], manifest["config"]["dimensions"]) == ("text-vector", 32)
    assert manifest["softmax"]["kernels"] == [{"name": "cosine", "hyperparameters": {"tau": 0.2}}]
    (quality,) = {each["value"] for each in manifest["quality"] if each["split"] == "test"}
    assert quality > 0.5
    assert "cosine" in (bundles / "errand-vectors" / "1" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "errand-vectors" in command(installed, "service.cli", "inspect", bundles / "errand-vectors" / "1")


def test_it_is_served_with_readiness_and_metrics(server: str) -> None:
    found = post(server, "/v1/vector", {"text": ["please walk now", "we would like to stroll"]})
    one, other = (np.array(each["embedding"]) for each in found["results"])
    assert found["model"] == "errand-vectors"
    assert np.linalg.norm(one) == pytest.approx(1.0, abs=1e-5)
    assert one @ other > 0.5
    with urllib.request.urlopen(f"{server}/v1/models/errand-vectors", timeout=5) as response:
        (model,) = json.load(response)["models"]
    assert (model["task"], model["operations"], model["state"]) == ("text-vector", ["vector"], "ready")
    with urllib.request.urlopen(f"{server}/metrics", timeout=5) as response:
        metrics = response.read().decode()
    assert (
        'softserve_requests_total{deadline="",endpoint="/v1/vector",model="errand-vectors",status="200"} 1.0' in metrics
    )
    with urllib.request.urlopen(f"{server}/openapi.json", timeout=5) as response:
        assert "/v1/vector" in json.load(response)["paths"]


def test_protocols_with_tensors_have_its_vectors(server: str) -> None:
    (native,) = post(server, "/v1/vector", {"text": "please walk now"})["results"]
    body = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["please walk now"]}]}
    (output,) = post(server, "/v2/models/errand-vectors/infer", body)["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("embedding", "FP32", [1, 32])
    assert output["data"] == pytest.approx(native["embedding"], abs=1e-6)

    request = ModelInferRequest(model_name="errand-vectors")
    given = request.inputs.add(name="text", datatype="BYTES", shape=[1])
    given.contents.bytes_contents.append(b"please walk now")
    with grpc.insecure_channel(f"127.0.0.1:{GRPC_PORT}") as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=ModelInferRequest.SerializeToString,
            response_deserializer=ModelInferResponse.FromString,
        )
        found = infer(request, timeout=30)
    assert [each.name for each in found.outputs] == ["embedding"]
    content = found.raw_output_contents[0] if found.raw_output_contents else None
    values = np.frombuffer(content, "f4") if content else found.outputs[0].contents.fp32_contents
    assert list(values) == pytest.approx(native["embedding"], abs=1e-6)


def test_language_models_have_it_as_a_tool(server: str) -> None:
    def call(method: str, **params: object) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(f"{server}/mcp", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            found: dict[str, Any] = json.load(response)["result"]
        return found

    (tool,) = call("tools/list")["tools"]
    assert (tool["name"], tool["description"]) == ("vector", "Return a unit vector for each text.")
    found = call("tools/call", name="vector", arguments={"text": "please walk now"})
    assert len(found["structuredContent"]["embedding"]) == 32


@needs("chromium")
def test_it_has_a_form_in_the_playground(server: str) -> None:
    with chromium() as browser:
        opened = Playground(browser, server, "#other")
        assert opened.settle() == "Answered."
        assert opened.posts == [{"text": "please walk now", "model": "errand-vectors:1"}]
        assert opened.page.get_by_role("navigation").get_by_role("link").all_inner_texts()[-1] == "Other"
        opened.page.get_by_label("Truncate").check()
        opened.page.get_by_label("Text").fill("word " * 100)
        opened.page.wait_for_function("() => document.querySelector('.request code').textContent.includes('word word')")
        opened.page.get_by_text("and 20 more").wait_for()
        assert opened.posts[-1] == {"text": "word " * 100, "truncate": True, "model": "errand-vectors:1"}
        assert Axe().run(opened.page).response["violations"] == []
        opened.close()


def test_it_has_a_command(installed: dict[str, str], bundles: Path) -> None:
    arguments = ["vector", "--text", "please walk now", "--model-dirs", bundles, "--format", "jsonl"]
    assert len(json.loads(command(installed, "service.cli", *arguments))["embedding"]) == 32
    assert "Return a unit vector for each text." in command(installed, "service.cli", "vector", "--help")


def test_its_own_bad_requests_are_refused_like_others(server: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="422"):
        post(server, "/v1/vector", {"text": "word " * 100})
