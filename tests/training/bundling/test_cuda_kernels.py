"""Tests of the table of CUDA kernels: every operator of every graph that a GPU would load has one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.backend.placement import SHAPE_OPERATORS
from models.reading import read_manifest
from tests.fixtures.dynamic_quantization import dynamically_quantized
from training.bundling.bundle import WrittenBundle
from training.bundling.cuda_kernels import TABLE, value_types, without_kernel
from training.bundling.device_graphs import cuda_graphs
from training.bundling.quantize import matrix_products, quantize_int8_static

BUNDLED = sorted((Path(__file__).parents[3] / "models" / "bundled").glob("*/*/"))
EXPORTS = ["tiny_export", "sparse_export", "pairs_export", "notes_export", "errands_export", "shapes_export"]
"""Toy exports of every task, and one of a sparse mixture."""


def graph_of(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, int], outputs: Sequence[str], opset: int = 20
) -> onnx.ModelProto:
    declared = [helper.make_tensor_value_info(name, kind, None) for name, kind in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", declared, results)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def one(operator: str, *types: int, opset: int = 20, domain: str = "", **attributes: object) -> onnx.ModelProto:
    """Return a graph of one operator with inputs of these types."""
    inputs = {f"x{position}": kind for position, kind in enumerate(types)}
    node = helper.make_node(operator, list(inputs), ["y"], "the_node", domain=domain, **attributes)  # type: ignore[arg-type]
    return graph_of([node], inputs, ["y"], opset)


def graphs(bundle: Path) -> dict[str, onnx.ModelProto]:
    """Return the graphs of a bundle that a GPU would load."""
    manifest = read_manifest(bundle)
    files = {name: graph.devices.get("cuda", graph.onnx) for name, graph in manifest.graphs.items()}
    return {name: onnx.load(bundle / str(file), load_external_data=False) for name, file in files.items()}


def test_the_table_is_that_of_the_pinned_version() -> None:
    constraints = (Path(__file__).parents[3] / "constraints.txt").read_text(encoding="utf-8")
    assert f"onnxruntime-gpu=={json.loads(TABLE.read_text())['onnxruntime-gpu']}" in constraints


@pytest.mark.parametrize("bundle", BUNDLED, ids=lambda path: path.parent.name)
def test_every_operator_of_a_bundled_model_has_a_kernel(bundle: Path) -> None:
    for model in graphs(bundle).values():
        assert without_kernel(model) == []


@pytest.mark.parametrize("name", EXPORTS)
def test_every_operator_of_every_task_has_a_kernel(name: str, request: pytest.FixtureRequest) -> None:
    exported: WrittenBundle = request.getfixturevalue(name)
    for model in graphs(exported.path).values():
        assert without_kernel(model) == []


def quantized(model: onnx.ModelProto, *, dynamic: bool) -> onnx.ModelProto:
    if dynamic:
        return dynamically_quantized(model)
    return quantize_int8_static(model, {node.input[0]: (-4.0, 4.0) for node in matrix_products(model)})


@pytest.mark.parametrize("float16", [False, True])
@pytest.mark.parametrize("name", EXPORTS)
def test_so_has_every_operator_of_int8_graphs_for_gpus(
    name: str, float16: bool, request: pytest.FixtureRequest
) -> None:
    exported: WrittenBundle = request.getfixturevalue(name)
    dynamic = exported.manifest.task == "language-model"
    for graph in exported.manifest.graphs.values():
        int8 = quantized(onnx.load(exported.path / str(graph.onnx)), dynamic=dynamic)
        derived = cuda_graphs({"g": int8}, float16=float16).get("g", int8)
        assert without_kernel(derived) == []
        assert not INTEGER & {node.op_type for node in derived.graph.node}


INTEGER = {"MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeLSTM", "QuantizeLinear", "DynamicQuantizeLinear"}


@pytest.mark.parametrize("name", ["de-en", "intents"])
def test_int8_graphs_lack_the_products(name: str) -> None:
    (bundle,) = (each for each in BUNDLED if each.parent.name == name)
    for graph in read_manifest(bundle).graphs.values():
        missing = without_kernel(onnx.load(bundle / str(graph.onnx), load_external_data=False))
        assert {line.partition(" ")[0] for line in missing} == {"MatMulIntegerToFloat"}


FLOAT, HALF, INT64, INT32, INT8 = (
    getattr(TensorProto, name) for name in ("FLOAT", "FLOAT16", "INT64", "INT32", "INT8")
)


@pytest.mark.parametrize(
    ("model", "types"),
    [
        (one("Det", FLOAT), "Det 20 (float) the_node"),
        (one("GatherND", INT32, INT64), "GatherND 20 (int32, int64) the_node"),
        (one("TensorScatter", FLOAT, FLOAT, INT64, opset=23), "TensorScatter 23 (float, float, int64) the_node"),
        (one("Range", HALF, HALF, HALF, opset=27), "Range 27 (float16, float16, float16) the_node"),
        (one("Invented", FLOAT), "Invented 20 (float) the_node"),
        (one("Where", TensorProto.BOOL, INT8, INT8), "Where 20 (bool, int8, int8) the_node"),
    ],
    ids=lambda value: value.split(" ")[0] if isinstance(value, str) else "",
)
def test_an_operator_without_a_kernel_is_named(model: onnx.ModelProto, types: str) -> None:
    assert without_kernel(model) == [types]


def test_constants_need_no_kernel() -> None:
    value = numpy_helper.from_array(np.ones(3, np.float32))
    nodes = [helper.make_node("Constant", [], ["one"], value=value), helper.make_node("Add", ["x", "one"], ["y"])]
    assert without_kernel(graph_of(nodes, {"x": TensorProto.FLOAT}, ["y"])) == []


@pytest.mark.parametrize(
    "model",
    [
        one("GatherND", FLOAT, INT64),
        one("GatherND", INT64, INT64),
        one("TensorScatter", FLOAT, FLOAT, INT64, opset=24),
        one("LSTM", FLOAT, FLOAT, FLOAT, hidden_size=4),
        one("TopK", FLOAT, INT64),
        one("LogSoftmax", HALF),
        one("Gather", INT8, INT64),
        one("MultiHeadAttention", HALF, HALF, HALF, domain="com.microsoft", num_heads=2),
        one("DequantizeLinear", INT8, FLOAT),
    ],
    ids=lambda model: model.graph.node[0].op_type,
)
def test_an_operator_with_a_kernel_is_not(model: onnx.ModelProto) -> None:
    assert without_kernel(model) == []


def test_shape_operators_are_left_out_where_they_compute_shapes_only() -> None:
    assert "Concat" in SHAPE_OPERATORS
    assert without_kernel(one("Squeeze", INT64)) == []
    assert without_kernel(one("Mul", TensorProto.UINT16, TensorProto.UINT16)) != []


def test_types_follow_from_inputs_weights_and_attributes() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("Cast", ["x"], ["half"], to=HALF),
        helper.make_node("MultiHeadAttention", ["half"] * 3, ["mixed"], domain="com.microsoft", num_heads=1),
        helper.make_node("Less", ["mixed", "half"], ["less"]),
        helper.make_node("TopK", ["mixed", "k"], ["best", "places"]),
        helper.make_node("DequantizeLinear", ["weight", "scale"], ["floats"]),
    ]
    model = graph_of(nodes, {"x": FLOAT, "k": INT64, "weight": INT8}, ["best"])
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "scale"))
    found = value_types(model)
    expected = {
        "x": "float", "shape": "int64", "zeros": "float", "half": "float16", "mixed": "float16", "less": "bool",
        "best": "float16", "places": "int64", "scale": "float", "floats": "float",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
