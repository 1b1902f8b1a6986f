"""Tests of observed ranges, on a graph with two products and a state."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from models.backend import Backend
from models.backend.onnx import OnnxBackend
from models.bundle.manifest import Graph, Manifest, TensorSpec
from training.bundling.calibration import RangeRecorder

Array = NDArray[np.float32]
SIZE = 64


@pytest.fixture
def weights() -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(2, SIZE, SIZE)).astype(np.float32)
    return first, second


@pytest.fixture
def model(weights: tuple[Array, Array]) -> onnx.ModelProto:
    """`new_sum = sum + x`, `y = relu(new_sum @ first) @ second`."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [
        node("Add", ["sum", "x"], ["new_sum"]),
        node("MatMul", ["new_sum", "first"], ["hidden"]),
        node("Relu", ["hidden"], ["positive"]),
        node("MatMul", ["positive", "second"], ["y"]),
    ]
    inputs, outputs = (
        [info(name, TensorProto.FLOAT, ["rows", SIZE]) for name in names] for names in (("x", "sum"), ("y", "new_sum"))
    )
    tensors = [numpy_helper.from_array(array, name) for name, array in zip(("first", "second"), weights, strict=True)]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)


def _rows(seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=(3, SIZE)).astype(np.float32)


def test_it_computes_what_the_graph_computes_and_remembers_extremes(
    model: onnx.ModelProto, weights: tuple[Array, Array]
) -> None:
    recorder = RangeRecorder({"g": model})
    sums, hidden = [], []
    for seed in range(3):
        x, state = (seed + 1) * _rows(seed), _rows(10 + seed)
        new, y = recorder.run("g", {"x": x, "sum": state}, ["new_sum", "y"])
        sums.append(x + state)
        hidden.append(np.maximum(sums[-1] @ weights[0], 0))
        np.testing.assert_allclose(new, sums[-1], rtol=1e-5)
        np.testing.assert_allclose(y, hidden[-1] @ weights[1], rtol=1e-3, atol=1e-3)
    ranges = recorder.ranges("g")
    assert ranges.keys() == {"new_sum", "positive"}
    assert ranges["new_sum"] == pytest.approx((np.min(sums), np.max(sums)))
    assert ranges["positive"] == pytest.approx((0, np.max(hidden)), rel=1e-4)


def test_ranges_hold_zero(model: onnx.ModelProto) -> None:
    """Zero must stay exact, since padding is zero."""
    recorder = RangeRecorder({"g": model})
    recorder.run("g", {"x": np.full((1, SIZE), 2, np.float32), "sum": np.ones((1, SIZE), np.float32)}, ["y"])
    assert recorder.ranges("g")["new_sum"] == (0, 3)


def test_a_graph_that_never_ran_has_no_ranges(model: onnx.ModelProto) -> None:
    with pytest.raises(KeyError):
        RangeRecorder({"g": model}).ranges("g")


def test_the_model_stays_as_it_is(model: onnx.ModelProto) -> None:
    before = model.SerializeToString()
    RangeRecorder({"g": model})
    assert model.SerializeToString() == before


def test_state_moves_on_as_in_the_backend_that_serves(model: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save_model(model, tmp_path / "g.onnx")
    specs = {
        name: TensorSpec(name=name, dtype="float32", shape=("rows", SIZE)) for name in ("x", "sum", "y", "new_sum")
    }
    graph = Graph(
        onnx="g.onnx", torchscript=None, inputs=(specs["x"], specs["sum"]), outputs=(specs["y"], specs["new_sum"])
    )
    served = OnnxBackend(tmp_path, Manifest.model_construct(graphs={"g": graph}), threads=1)
    results = []
    backends: list[Backend] = [RangeRecorder({"g": model}), served]
    for backend in backends:
        resident = backend.resident("g", {"sum": np.zeros((3, SIZE), np.float32)}, {})
        values = [resident.run({"x": _rows(seed)}, ["y"])[0] for seed in range(3)]
        results.append((values, resident.state()["sum"]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(results[0][1], sum(map(_rows, range(3))), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-5, atol=1e-5)
