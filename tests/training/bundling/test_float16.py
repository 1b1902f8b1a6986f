"""Tests of matrix products in float16."""

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from training.bundling.cuda_kernels import value_types
from training.bundling.float16 import to_float16


@pytest.fixture
def model() -> onnx.ModelProto:
    """`log_softmax(layer_norm(relu(x @ a + b) + x) @ c)`."""
    generator = np.random.default_rng(0)
    weights = {name: generator.normal(size=(8, 8)).astype(np.float32) for name in "ac"}
    weights |= {"b": generator.normal(size=8).astype(np.float32), "scale": np.ones(8, np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["first"]),
        helper.make_node("Add", ["first", "b"], ["biased"]),
        helper.make_node("Relu", ["biased"], ["active"]),
        helper.make_node("Add", ["active", "x"], ["residual"]),
        helper.make_node("LayerNormalization", ["residual", "scale"], ["normal"]),
        helper.make_node("MatMul", ["normal", "c"], ["scores"]),
        helper.make_node("LogSoftmax", ["scores"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 8]) for name in "xy")
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def run(model: onnx.ModelProto, x: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_products_before_the_last_and_what_follows_from_them_alone_are_halved(model: onnx.ModelProto) -> None:
    assert to_float16(model)
    types = value_types(model)
    named = {node.op_type: types[node.output[0]] for node in model.graph.node if node.op_type != "Cast"}
    assert types["first_half"] == types["biased_half"] == types["active_half"] == "float16"
    assert named["LayerNormalization"] == named["LogSoftmax"] == types["scores"] == types["residual"] == "float"


def test_results_are_close_and_differ(model: onnx.ModelProto) -> None:
    x = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    exact = run(model, x)
    to_float16(model)
    onnx.checker.check_model(model)
    assert 0 < np.abs(run(model, x) - exact).max() < 0.02


def test_each_value_is_cast_once(model: onnx.ModelProto) -> None:
    to_float16(model)
    cast = [node.input[0] for node in model.graph.node if node.op_type == "Cast"]
    assert sorted(cast) == ["a", "active_half", "b", "x"]


def test_an_output_stays_float32(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("active", TensorProto.FLOAT, ["rows", 8]))
    to_float16(model)
    assert value_types(model)["active"] == "float"
    onnx.checker.check_model(model)


def test_the_only_product_stays_float32(model: onnx.ModelProto) -> None:
    del model.graph.node[:5]
    model.graph.node[0].input[0] = "x"
    before = model.SerializeToString()
    assert not to_float16(model)
    assert model.SerializeToString() == before
