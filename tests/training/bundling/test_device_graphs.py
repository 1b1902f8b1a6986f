"""Tests of graphs for GPUs: the same weights in floats, without the operators that a GPU lacks."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models import ModelStore
from models.reading import read_manifest
from tests.fixtures.dynamic_quantization import dynamically_quantized
from training.bundling.device_graphs import cuda_graph, with_cuda_graphs
from training.bundling.onnx import WEIGHTS, save_graphs
from training.bundling.quantize import quantize_int8_static

Array = NDArray[np.generic]
BUNDLED = Path(__file__).parents[3] / "models" / "bundled"
INT8 = [(name, graph) for name, graph in (("de-en", "encode"), ("de-en", "step"), ("intents", "classify"))]


def session(model: onnx.ModelProto | Path, saved: Path | None = None) -> onnxruntime.InferenceSession:
    """Return a session on the CPU with the options that one on a GPU has."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    content = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def product(weight: NDArray[np.float32], bias: NDArray[np.float32] | None = None) -> onnx.ModelProto:
    """Return `y = x @ weight + bias`."""
    tensors = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    node = helper.make_node("MatMul" if bias is None else "Gemm", ["x", *tensors], ["y"])
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])
        for name, size in zip("xy", weight.shape, strict=True)
    )
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(a, n) for n, a in tensors.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture
def weight() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(96, 48)).astype(np.float32) * np.logspace(0, -3, 48, dtype=np.float32)


def rounded(model: onnx.ModelProto) -> NDArray[np.float32]:
    """Return the float weight that the int8 weight of a quantized product stands for."""
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    (integers,) = (a for a in arrays.values() if a.dtype == np.int8 and a.ndim == 2)
    (scales,) = (a for a in arrays.values() if a.shape == (48,) and a.dtype == np.float32 and a.max() < 0.2)
    return integers * scales  # type: ignore[no-any-return]


@pytest.mark.parametrize("static", [True, False])
def test_a_product_is_that_of_the_rounded_weight_and_the_exact_activation(
    static: bool, weight: NDArray[np.float32]
) -> None:
    x = np.random.default_rng(1).normal(size=(5, 96)).astype(np.float32)
    int8 = (
        quantize_int8_static(product(weight), {"x": (-4.0, 4.0)}) if static else dynamically_quantized(product(weight))
    )
    derived = cuda_graph(int8)
    assert derived is not None
    np.testing.assert_allclose(session(derived).run(None, {"x": x})[0], x @ rounded(int8), atol=1e-5)


def test_a_bias_is_added(weight: NDArray[np.float32]) -> None:
    bias = np.arange(48, dtype=np.float32)
    int8 = quantize_int8_static(product(weight, bias), {"x": (-4.0, 4.0)})
    derived = cuda_graph(int8)
    assert derived is not None
    x = np.random.default_rng(1).normal(size=(5, 96)).astype(np.float32)
    np.testing.assert_allclose(session(derived).run(None, {"x": x})[0], x @ rounded(int8) + bias, atol=1e-5)


@pytest.mark.parametrize("given", [0, 2], ids=["no state", "state"])
def test_an_lstm_is_that_of_the_rounded_weights(given: int) -> None:
    generator = np.random.default_rng(2)
    size = 32
    tensors = {name: generator.normal(size=(1, 4 * size, size)).astype(np.float32) * 0.3 for name in ("w", "r")}
    inputs = ["x", "w", "r", "", "", "h", "c"][: 3 + 2 * given]
    lstm = helper.make_node("LSTM", inputs, ["y"], hidden_size=size)
    declared = {"x": (3, 2, size), **({"h": (1, 2, size), "c": (1, 2, size)} if given else {})}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in declared.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 1, 2, size))
    graph = helper.make_graph([lstm], "g", infos, [output], [numpy_helper.from_array(a, n) for n, a in tensors.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    int8 = dynamically_quantized(model)
    assert [node.op_type for node in int8.graph.node] == ["DynamicQuantizeLSTM"]
    derived = cuda_graph(int8)
    assert derived is not None
    assert "LSTM" in {node.op_type for node in derived.graph.node}
    feed = {name: generator.normal(size=shape).astype(np.float32) for name, shape in declared.items()}
    exact, found = (session(each).run(None, feed)[0] for each in (model, derived))
    assert np.abs(found - exact).max() < 0.03
    assert np.abs(found - exact).max() > 0


def test_a_graph_that_a_gpu_can_run_needs_no_other(weight: NDArray[np.float32]) -> None:
    assert cuda_graph(product(weight)) is None
    assert list(with_cuda_graphs({"f": product(weight)})) == ["f"]


def test_an_operator_without_a_kernel_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    model = product(np.ones((4, 4), np.float32))
    model.graph.node[0].op_type = "Det"
    del model.graph.node[0].input[1:]
    assert cuda_graph(model) is None
    assert "no CUDA kernel for Det 20 (float) y" in caplog.text


def test_both_graphs_read_the_same_weights(weight: NDArray[np.float32], tmp_path: Path) -> None:
    int8 = quantize_int8_static(product(weight), {"x": (-4.0, 4.0)})
    save_graphs({"g": int8}, tmp_path)
    alone = (tmp_path / WEIGHTS).read_bytes()
    names = save_graphs(with_cuda_graphs({"g": int8}), tmp_path)
    assert names == ["g.onnx", "g.cuda.onnx", WEIGHTS]
    assert (tmp_path / WEIGHTS).read_bytes() == alone
    assert len(alone) == weight.size


def external(model: onnx.ModelProto) -> set[tuple[str, ...]]:
    return {tuple(e.value for e in tensor.external_data) for tensor in model.graph.initializer if tensor.external_data}


@pytest.mark.parametrize(("name", "graph"), INT8)
def test_the_bundled_ones_read_the_same_weights_and_are_folded_when_loaded(
    name: str, graph: str, tmp_path: Path
) -> None:
    bundle = ModelStore(BUNDLED).path(name)
    spec = read_manifest(bundle).graphs[graph]
    cpu, cuda = (onnx.load(bundle / str(file), load_external_data=False) for file in (spec.onnx, spec.devices["cuda"]))
    assert external(cuda) == external(cpu)
    assert (bundle / spec.devices["cuda"]).stat().st_size < 200_000
    session(bundle / spec.devices["cuda"], tmp_path / "optimized.onnx")
    optimized = onnx.load(tmp_path / "optimized.onnx", load_external_data=False)
    operators = {node.op_type for node in optimized.graph.node}
    assert not {"DequantizeLinear", "MatMulNBits", "MatMulIntegerToFloat", "QuantizeLinear"} & operators
    assert operators & {"MatMul", "Gemm", "FusedMatMul"}
