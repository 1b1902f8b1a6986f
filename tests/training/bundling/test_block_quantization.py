"""Tests of weights in blocks of 4 or 8 bits: integers by hand, products, look-ups, independence of the batch."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.support.blocks import dequantized, rounded
from training.bundling.block_quantization import Bits, block_of, quantize_blocks, quantized_blocks
from training.bundling.weight_file import save_graphs

Array = NDArray[np.float32]


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _model(node: onnx.NodeProto, inputs: list[str | int], outputs: int, **weights: Array) -> onnx.ModelProto:
    kind = TensorProto.INT64 if node.op_type == "Gather" else TensorProto.FLOAT
    x, y = helper.make_tensor_value_info("x", kind, inputs), helper.make_tensor_value_info("y", 1, ["rows", outputs])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _product(weight: Array) -> onnx.ModelProto:
    return _model(helper.make_node("MatMul", ["x", "w"], ["y"]), ["rows", weight.shape[0]], weight.shape[1], w=weight)


def _look_up(table: Array) -> onnx.ModelProto:
    return _model(helper.make_node("Gather", ["table", "x"], ["y"]), ["rows"], table.shape[1], table=table)


def _run(model: onnx.ModelProto, x: NDArray[np.generic]) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def _exactly(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph whose activations are not quantized."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 1
    return model


def test_one_block_by_hand() -> None:
    """From -4 to 3.5 there are 15 steps of 0.5, and 0 is 8; the second block has no negative number, so that 0 is 0."""
    first = np.tile(np.arange(-8, 8) * 0.5, 2)
    second = np.tile([0.0, 1.0, 2.0, 15.0], 8)
    integers, scales, zeros = quantized_blocks(np.concatenate([first, second])[None].astype(np.float32), 4)
    assert scales.tolist() == [[0.5, 1.0]]
    assert zeros is not None
    assert zeros.tolist() == [[8 + 16 * 0]]
    assert integers[0, 0].tolist() == [low + 16 * (low + 1) for low in range(0, 16, 2)] * 2
    assert integers[0, 1].tolist() == [0 + 16 * 1, 2 + 16 * 15] * 8


def test_eight_bits_by_hand() -> None:
    integers, scales, zeros = quantized_blocks(np.array([[-1.0, 0.0, 0.5, *[0.25] * 29]], np.float32), 8)
    assert zeros is None
    assert scales.tolist() == [[1 / 128]]
    assert integers[0, 0, :4].tolist() == [0, 128, 192, 160]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("inputs", [64, 70, 33])
def test_a_weight_is_rounded_by_half_a_step_at_most(bits: Bits, inputs: int) -> None:
    weight = _random(9, inputs)
    integers, scales, zeros = quantized_blocks(weight, bits)
    error = np.abs(dequantized(integers, scales, zeros)[:, :inputs] - weight)
    steps = np.repeat(scales, 32, axis=1)[:, :inputs]
    assert (error <= (1.01 if bits == 4 else 0.51) * np.abs(steps)).all()  # zeros are rounded as well
    assert (error <= 0.51 * np.abs(steps)).mean() > 0.95


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("inputs", [64, 100])
def test_products_are_those_with_the_rounded_matrix(bits: Bits, inputs: int) -> None:
    weight, x = _random(inputs, 80), _random(5, inputs)
    quantized, matrix = quantize_blocks(_product(weight), bits), rounded(weight.T, bits).T
    assert [node.op_type for node in quantized.graph.node] == ["MatMulNBits"]
    found = _run(quantized, x)
    np.testing.assert_allclose(_run(_exactly(quantized), x), x @ matrix, atol=1e-4)
    # An activation is rounded by half a step of its block at most.
    padded = np.pad(np.abs(x), ((0, 0), (0, -inputs % 32))).reshape(5, -1, 32)
    halves = np.repeat(padded.max(-1) / 127 / 2, 32, axis=1)[:, :inputs]
    assert (np.abs(found - x @ matrix) <= halves @ np.abs(matrix) + 1e-4).all()
    assert np.abs(found - x @ matrix).max() > 1e-4, "activations are not rounded"


@pytest.mark.parametrize(("inputs", "block"), [(256, 128), (192, 64), (96, 32), (100, 32)])
def test_blocks_are_as_large_as_divides_the_inputs(inputs: int, block: int) -> None:
    assert block_of(inputs, 128) == block
    weight, x = _random(inputs, 80), _random(5, inputs)
    quantized = _exactly(quantize_blocks(_product(weight), 8, largest_block=128))
    assert {each.i for each in quantized.graph.node[0].attribute if each.name == "block_size"} == {block}
    np.testing.assert_allclose(_run(quantized, x), x @ rounded(weight.T, 8, block).T, atol=1e-4)
    table, rows = _random(80, inputs), np.array([3, 0, 79])
    found = _run(quantize_blocks(_look_up(table), 8, largest_block=128), rows)
    np.testing.assert_array_equal(found, rounded(table, 8, block)[rows])


@pytest.mark.parametrize("inputs", [64, 70])
def test_split_activations_are_rounded_254_times_less(inputs: int) -> None:
    weight, bias, x = _random(inputs, 80), _random(80), _random(2, 3, inputs)
    x[0, 1] = 0
    node = helper.make_node("MatMul", ["x", "w"], ["product"])
    model = _model(node, ["texts", "rows", inputs], 80, w=weight, b=bias)
    model.graph.node.append(helper.make_node("Add", ["product", "b"], ["y"]))
    expected = x @ rounded(weight.T, 8).T + bias
    once = np.abs(_run(quantize_blocks(model, 8), x) - expected).max()
    twice = np.abs(_run(quantize_blocks(model, 8, split_activations=True), x) - expected).max()
    assert twice < once / 100


def test_an_activation_of_several_products_is_split_once() -> None:
    one, other, bias, x = _random(70, 80), _random(70, 90), _random(80), _random(5, 70)
    model = _model(helper.make_node("Gemm", ["x", "w", "b"], ["first"]), ["rows", 70], 80, w=one, b=bias, v=other)
    second, scores = helper.make_node("MatMul", ["x", "v"], ["second"]), ["first", "second"]
    model.graph.node.extend([second, helper.make_node("Concat", scores, ["y"], axis=1)])
    quantized = quantize_blocks(model, 8, split_activations=True)
    kinds = [node.op_type for node in quantized.graph.node]
    assert (kinds.count("MatMulNBits"), kinds.count("Round")) == (4, 1)
    expected = np.concatenate([x @ rounded(one.T, 8).T + bias, x @ rounded(other.T, 8).T], axis=1)
    np.testing.assert_allclose(_run(quantized, x), expected, atol=2e-3)


def test_a_stored_transpose_and_a_bias() -> None:
    weight, bias, x = _random(80, 64), _random(80), _random(5, 64)
    model = _model(helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1), ["rows", 64], 80, w=weight, b=bias)
    found = _run(_exactly(quantize_blocks(model, 8)), x)
    np.testing.assert_allclose(found, x @ rounded(weight, 8).T + bias, atol=1e-4)


@pytest.mark.parametrize("size", [64, 70])
def test_rows_of_a_table_have_eight_bits(size: int) -> None:
    table, rows = _random(80, size), np.array([3, 0, 79])
    np.testing.assert_array_equal(_run(quantize_blocks(_look_up(table), 4), rows), rounded(table, 8)[rows])


def test_a_tied_table_is_stored_once(tmp_path: Path) -> None:
    table = _random(200, 64)
    tied = helper.make_node("Gemm", ["x", "head"], ["y"], transB=1)
    models = {"read": _look_up(table), "predict": _model(tied, ["rows", 64], 200, head=table)}
    save_graphs({name: quantize_blocks(model, 8) for name, model in models.items()}, tmp_path)
    pages = (4096 * -(-size // 4096) for size in (200 * 64, 200 * 2 * 4))  # integers, scales
    assert (tmp_path / "weights.bin").stat().st_size <= sum(pages)


def test_a_row_does_not_depend_on_others() -> None:
    quantized, x = quantize_blocks(_product(_random(96, 80)), 4), _random(40, 96)
    x[::2] *= 100
    alone = np.concatenate([_run(quantized, row[None]) for row in x])
    # Sums are in another order in a batch: an error of float32, which the largest results have.
    assert (np.abs(_run(quantized, x) - alone).max(axis=1) <= 1e-6 * np.abs(alone).max(axis=1)).all()


def test_small_and_other_matrices_have_no_blocks() -> None:
    small = _product(_random(16, 16))
    assert quantize_blocks(small, 4).graph.node == small.graph.node
    node = helper.make_node("Add", ["x", "w"], ["y"])
    other = quantize_blocks(_model(node, ["rows", 64], 64, w=_random(80, 64)), 4)
    assert {tensor.name: tensor.data_type for tensor in other.graph.initializer} == {
        "w_int8": TensorProto.INT8,
        "w_scales": TensorProto.FLOAT,
    }


def test_the_given_graph_stays() -> None:
    model = _product(_random(64, 80))
    content = model.SerializeToString()
    quantize_blocks(model, 4)
    assert model.SerializeToString() == content
