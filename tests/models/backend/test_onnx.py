import ctypes
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from models import BundleError, UnsupportedDeviceError
from models.backend import onnx
from models.backend.onnx import OnnxBackend
from models.reading import read_manifest
from service.settings import BUNDLED

INTENTS = BUNDLED / "intents" / "2"


@pytest.fixture(scope="module")
def backend(bundled):
    return OnnxBackend(bundled, read_manifest(bundled), threads=1)


@pytest.fixture
def inputs(model):
    network = model.manifest.config.network
    state = np.zeros((network.num_layers, 1, network.hidden_size), np.float32)
    end = model.manifest.config.special_tokens.end
    return {"tokens": np.array([[end]]), "lengths": np.array([1]), "hidden": state, "cell": state, "k": np.array(3)}


def test_it_says_what_it_is(backend):
    assert (backend.name, backend.device) == ("onnx", "cpu")


def test_outputs_come_in_the_order_asked_for(backend, inputs):
    words, values = backend.run("next_words", inputs, ["words", "log_probabilities"])
    assert words.dtype == np.int64
    assert words.shape == values.shape == (1, 3)
    (entropy,) = backend.run("next_words", inputs, ["entropy"])
    assert entropy.shape == (1,)


def test_it_computes_what_the_manifest_declares(backend, inputs, model):
    spec = model.manifest.graphs["next_words"].outputs
    axes = {"batch": 1, "k": 3, "steps": 1}
    for tensor, result in zip(spec, backend.run("next_words", inputs, [t.name for t in spec]), strict=True):
        assert result.dtype.name == tensor.dtype
        assert result.shape == tuple(axes.get(axis, axis) for axis in tensor.shape)


def test_inputs_stay_as_they_are(backend, inputs):
    before = {name: value.copy() for name, value in inputs.items()}
    backend.run("next_words", inputs, ["next_hidden"])
    assert all(np.array_equal(inputs[name], value) for name, value in before.items())


def test_padding_is_never_read(backend, inputs):
    padded = inputs | {"tokens": np.array([[inputs["tokens"][0, 0], 5, 6]])}
    for one, other in zip(
        backend.run("next_words", inputs, ["log_probabilities", "next_hidden"]),
        backend.run("next_words", padded, ["log_probabilities", "next_hidden"]),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_an_unknown_graph_is_a_bug_of_the_caller(backend, inputs):
    with pytest.raises(KeyError, match="translate"):
        backend.run("translate", inputs, ["words"])


@pytest.mark.parametrize("device", ["tpu", "", "CPU", "cpu:0", "cuda:", "cuda:x", "cuda:1000", "auto:1"])
def test_unknown_devices_name_the_known_ones(bundled, device):
    with pytest.raises(UnsupportedDeviceError, match=f"unknown device '{device}'; known devices: auto, cpu, cuda"):
        OnnxBackend(bundled, read_manifest(bundled), device=device)


def test_a_gpu_that_is_not_there_is_never_replaced(bundled, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(UnsupportedDeviceError, match="no CUDAExecutionProvider, which device 'cuda' needs"):
        OnnxBackend(bundled, read_manifest(bundled), device="cuda")


def test_tensorrt_is_not_offered_where_its_library_is_not_installed(bundled, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["TensorrtExecutionProvider"])
    monkeypatch.setattr(ctypes, "CDLL", _no_library)
    with pytest.raises(UnsupportedDeviceError, match=r"device 'tensorrt:1' needs TensorRT \(libnvinfer\)"):
        OnnxBackend(bundled, read_manifest(bundled), device="tensorrt:1")
    with pytest.raises(UnsupportedDeviceError, match="known devices: auto, cpu, cuda, and cuda:1 and so on"):
        OnnxBackend(bundled, read_manifest(bundled), device="tpu")


def _no_library(name):
    raise OSError(name)


def test_a_provider_that_does_not_load_is_never_replaced(bundled, monkeypatch):
    session = SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: session)
    with pytest.raises(UnsupportedDeviceError, match="CUDAExecutionProvider was asked for but did not load"):
        OnnxBackend(bundled, read_manifest(bundled), device="cuda")


def session_of(providers):
    """A session with these providers and no inputs, outputs or nodes, for `without_signatures`."""
    return SimpleNamespace(
        get_providers=lambda: providers,
        get_inputs=list,
        get_outputs=list,
        get_provider_graph_assignment_info=list,
    )


def test_a_runtime_that_does_not_say_where_it_places_nodes_is_an_error(bundled, monkeypatch):
    session = session_of(["CUDAExecutionProvider"])
    del session.get_provider_graph_assignment_info
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: session)
    with pytest.raises(AttributeError, match="get_provider_graph_assignment_info"):
        OnnxBackend(bundled, without_signatures(bundled), device="cuda")


def without_signatures(bundle):
    manifest = read_manifest(bundle)
    graphs = {name: graph.model_copy(update={"inputs": (), "outputs": ()}) for name, graph in manifest.graphs.items()}
    return manifest.model_copy(update={"graphs": graphs})


@pytest.mark.parametrize(
    ("device", "providers"),
    [
        ("cuda", [("CUDAExecutionProvider", {"device_id": 0})]),
        ("cuda:1", [("CUDAExecutionProvider", {"device_id": 1})]),
        (
            "tensorrt:2",
            [("TensorrtExecutionProvider", {"device_id": 2}), ("CUDAExecutionProvider", {"device_id": 2})],
        ),
    ],
)
def test_a_device_is_its_provider_and_number(bundled, monkeypatch, device, providers):
    asked = []

    def session(*_, **arguments):
        asked.append(arguments["providers"])
        return session_of([name for name, _ in providers])

    monkeypatch.setattr(onnx, "_has_tensorrt", lambda: True)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [name for name, _ in providers])
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    assert OnnxBackend(bundled, without_signatures(bundled), device=device).device == device
    assert asked[0] == providers


@pytest.mark.parametrize("available", [["CPUExecutionProvider"], ["CUDAExecutionProvider", "CPUExecutionProvider"]])
def test_auto_is_the_processor_where_no_gpu_loads(bundled, inputs, available, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: available)
    manifest = read_manifest(bundled)
    if "CUDAExecutionProvider" in available:  # installed, but without a driver it does not load
        manifest = without_signatures(bundled)
        monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: session_of(["CPUExecutionProvider"]))
    assert OnnxBackend(bundled, manifest, device="auto").device == "cpu"


def test_two_runtimes_at_once_are_refused(bundled, monkeypatch):
    installed = [SimpleNamespace(name="onnxruntime"), SimpleNamespace(name="onnxruntime-gpu")]
    monkeypatch.setattr(onnx, "distributions", lambda name: [each for each in installed if each.name == name])
    with pytest.raises(UnsupportedDeviceError, match="pip uninstall -y onnxruntime onnxruntime-gpu"):
        OnnxBackend(bundled, read_manifest(bundled))


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-gpu"])
def test_one_runtime_is_fine(bundled, monkeypatch, runtime):
    monkeypatch.setattr(onnx, "distributions", lambda name: [SimpleNamespace(name=name)] * (name == runtime))
    assert OnnxBackend(bundled, read_manifest(bundled), threads=1).device == "cpu"


@pytest.mark.parametrize("data", [b"", b"rubbish", b"\0" * 100])
def test_a_file_that_is_no_graph_is_named(bundle, data):
    (bundle / "next_words.onnx").write_bytes(data)
    with pytest.raises(BundleError, match=r"next_words\.onnx does not load"):
        OnnxBackend(bundle, read_manifest(bundle))


def test_weights_cut_short_are_a_bundle_error(bundle):
    with (bundle / "weights.bin").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(BundleError, match=r"\.onnx does not load"):
        OnnxBackend(bundle, read_manifest(bundle))


def test_a_graph_without_onnx_file_is_named(bundled):
    manifest = read_manifest(bundled)
    graph = manifest.graphs["score"].model_copy(update={"onnx": None, "torchscript": "model.ts"})
    changed = manifest.model_copy(update={"graphs": {**manifest.graphs, "score": graph}})
    with pytest.raises(BundleError, match="graph 'score' has no ONNX file"):
        OnnxBackend(bundled, changed)


@pytest.mark.parametrize(("usable", "threads", "expected"), [(3, None, 3), (8, None, 0), (3, 2, 2)])
def test_threads_are_those_a_container_may_use(bundled, monkeypatch, usable, threads, expected):
    monkeypatch.setattr(onnx, "usable_cpus", lambda: usable)
    monkeypatch.setattr(onnx.os, "cpu_count", lambda: 8)
    backend = OnnxBackend(bundled, read_manifest(bundled), threads=threads)
    session = next(iter(backend._sessions.values()))
    assert session.get_session_options().intra_op_num_threads == expected


def test_a_run_beside_another_has_threads_of_its_own_and_gives_the_same(bundled, inputs):
    backend = OnnxBackend(bundled, read_manifest(bundled), threads=2, parallel=2)
    alone = backend.run("next_words", inputs, ["log_probabilities"])
    wide, used = backend._sessions["next_words"], []
    entered, leave = threading.Event(), threading.Event()

    def slow(*arguments):
        used.append("wide")
        entered.set()
        assert leave.wait(10)
        return wide.run(*arguments)

    backend._sessions = {"next_words": SimpleNamespace(run=slow)}
    with ThreadPoolExecutor() as pool:
        first = pool.submit(backend.run, "next_words", inputs, ["log_probabilities"])
        assert entered.wait(10)
        second = pool.submit(backend.run, "next_words", inputs, ["log_probabilities"]).result(10)
        leave.set()
        assert used == ["wide"]
        for found in (first.result(10), second):
            np.testing.assert_array_equal(found[0], alone[0])
        backend.run("next_words", inputs, ["log_probabilities"])  # the next one may be concurrent again
        assert used == ["wide"]
        backend.run("next_words", inputs, ["log_probabilities"])
        assert used == ["wide", "wide"]


@pytest.mark.parametrize(("threads", "parallel"), [(1, 2), (2, 1)])
def test_there_is_one_copy_of_a_model_where_another_would_not_help(bundled, threads, parallel):
    backend = OnnxBackend(bundled, read_manifest(bundled), threads=threads, parallel=parallel)
    assert backend._concurrent_sessions is backend._sessions


@pytest.mark.parametrize("module", ["models.backend.onnx", "training.bundling.calibration", "benchmarks.softmax"])
def test_onnxruntime_is_told_to_report_nothing_before_it_is_loaded(module):
    look = (
        "import importlib, os, sys\n"
        "class Look:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'onnxruntime': sys.exit(os.environ.get('ORT_DISABLE_TELEMETRY') != '1')\n"
        f"sys.meta_path.insert(0, Look())\nimportlib.import_module({module!r})\nsys.exit(2)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    assert subprocess.run([sys.executable, "-c", look], env=environment, check=False).returncode == 0


# ---- graphs for devices ----


@pytest.fixture
def loaded(monkeypatch):
    """The files and options of the sessions that are created."""
    found, real = {}, onnxruntime.InferenceSession

    def create(path, options, providers):
        entries = ("session.disable_quant_qdq", "session.record_ep_graph_assignment_info")
        found[path.rsplit("/", 1)[-1]] = [has(options, entry) for entry in entries]
        return real(path, options, providers=["CPUExecutionProvider"])

    def has(options, entry):
        try:
            return options.get_session_config_entry(entry) == "1"
        except RuntimeError:
            return False

    monkeypatch.setattr(onnx.onnxruntime, "InferenceSession", create)
    return found


def test_the_cpu_loads_the_graphs_for_the_cpu(loaded):
    OnnxBackend(INTENTS, read_manifest(INTENTS))
    assert loaded == {"classify.onnx": [False, False]}


def test_graphs_for_gpus_can_be_run_on_the_cpu(loaded):
    OnnxBackend(INTENTS, read_manifest(INTENTS), graphs="cuda")
    assert loaded == {"classify.cuda.onnx": [True, True]}


@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_a_gpu_loads_the_graphs_for_gpus_and_operators_on_the_cpu_are_an_error(device, loaded, monkeypatch):
    """With sessions on the CPU in place of the GPU's: each operator is one that fell back."""
    monkeypatch.setattr(onnx, "_has_tensorrt", lambda: True)
    monkeypatch.setattr(onnx, "_PROVIDERS", {device: "CPUExecutionProvider", "cuda": "CPUExecutionProvider"})
    with pytest.raises(UnsupportedDeviceError, match=rf"classify.cuda.onnx: {device} has no kernel for .*Gemm"):
        OnnxBackend(INTENTS, read_manifest(INTENTS), device=device)
    assert loaded == {"classify.cuda.onnx": [True, True]}
    assert OnnxBackend(INTENTS, read_manifest(INTENTS), device=device, allow_cpu_fallback=True).device == device


def test_auto_uses_the_cpu_where_operators_would_fall_back(monkeypatch, caplog):
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(onnx, "_PROVIDERS", {"cuda": "CPUExecutionProvider", "cpu": "CPUExecutionProvider"})
    monkeypatch.setattr(
        onnx.onnxruntime, "InferenceSession", lambda *some, **more: real(*some, providers=["CPUExecutionProvider"])
    )
    assert OnnxBackend(INTENTS, read_manifest(INTENTS), device="auto").device == "cpu"
    assert "device auto uses the CPU for intents: classify.cuda.onnx" in caplog.text


def test_a_bundle_without_graphs_for_gpus_has_one_file_for_all(bundled, loaded):
    OnnxBackend(bundled, read_manifest(bundled), graphs="cuda")
    assert sorted(loaded) == ["next_words.onnx", "score.onnx"]
