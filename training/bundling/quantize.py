"""Int8 quantization: weights stored as int8; activations in float32, or quantized by known ranges.

Shapes: `M` rows, `K` inputs and `N` outputs of a matrix product.
"""

import copy
from collections.abc import Collection, Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from training.bundling.onnx_tools import keep_used_weights, need_runtime_operators
from training.bundling.weight_file import array_of

__all__ = ["matrix_products", "quantize_int8_static", "quantize_int8_weights", "stored_tables"]

_LARGEST_WEIGHT = 63
"""Seven bits: processors without a wide enough accumulator saturate where two products of eight bits are added."""

_ROWS_AT_ONCE = 4096
"""Rows of a matrix that are rounded at a time."""

_SMALLEST = 4096
"""Products with fewer weights stay as they are."""


def quantize_int8_weights(model: onnx.ModelProto, keep: Collection[str] = ()) -> onnx.ModelProto:
    """Return the graph with matrices stored as int8, one scale a row, and computed with in float32.

    ONNX Runtime multiplies them out when it loads the graph, so that a result costs as much as in float32 and does
    not depend on the other rows of a batch. Matrices named in `keep` stay as they are.
    """
    stored = copy.deepcopy(model)
    graph, nodes, weights = stored.graph, [], []
    for tensor in graph.initializer:
        array = array_of(tensor)
        if tensor.name in keep or array.dtype != np.float32 or array.ndim < 2 or array.size < _SMALLEST:
            weights.append(tensor)
            continue
        name = tensor.name
        scales = _scales(array, -1, 127)
        weights.append(numpy_helper.from_array(_rounded(array, scales), f"{name}_int8"))
        weights.append(numpy_helper.from_array(scales.astype(np.float32), f"{name}_scales"))
        nodes.append(helper.make_node("Cast", [f"{name}_int8"], [f"{name}_float"], to=onnx.TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{name}_float", f"{name}_scales"], [name]))
    nodes += graph.node
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(weights)
    return stored


def matrix_products(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes that multiply activations `[M, K]` with stored weights: MatMul, or Gemm with a stored bias."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    found = []
    for node in model.graph.node:
        stored = node.op_type in ("MatMul", "Gemm") and all(name in weights for name in node.input[1:])
        if stored and len(weights[node.input[1]].dims) == 2 and np.prod(weights[node.input[1]].dims) >= _SMALLEST:
            found.append(node)
    return found


def stored_tables(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes that look up rows of a stored matrix, such as word vectors: Gather."""
    stored = {
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2 and np.prod(tensor.dims) >= _SMALLEST
    }
    lookups = [node for node in model.graph.node if node.op_type == "Gather" and node.input[0] in stored]
    return [node for node in lookups if not any(each.name == "axis" and each.i for each in node.attribute)]


def quantize_int8_static(
    model: onnx.ModelProto, ranges: Mapping[str, tuple[float, float]], keep: Collection[str] = ()
) -> onnx.ModelProto:
    """Return the graph with int8 products and word vectors, activations `[M, K]` rounded by `ranges` of each input.

    A result does not depend on the other rows of a batch, as it does where one scale is found for all rows
    (dynamic quantization). Weights have a scale per output channel, word vectors one per word. Tables named in `keep`
    stay as they are.
    """
    graph = _Rewriter(copy.deepcopy(model))
    products = {node.output[0] for node in matrix_products(model)}
    tables = {node.output[0] for node in stored_tables(model) if node.input[0] not in keep}
    for node in model.graph.node:
        if node.output[0] in products:
            graph.product(node, *ranges[node.input[0]])
        elif node.output[0] in tables:
            graph.table(node)
        else:
            graph.nodes.append(node)
    return graph.finish()


def _scales(array: NDArray[np.float32], axis: int, largest: int) -> NDArray[np.float32]:
    """Return the factors, along an axis, by which the largest entries become integers of this size; the axis stays."""
    bounds = array.max(axis=axis, keepdims=True), -array.min(axis=axis, keepdims=True)
    found: NDArray[np.float32] = np.maximum(np.maximum(*bounds), 1e-12) / largest
    return found


def _rounded(array: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return `array / scales` as integers; without copies in float32, which may be large."""
    found = np.empty(array.shape, np.int8)
    parts = np.broadcast_to(scales, (len(array), *scales.shape[1:]))
    for first in range(0, len(array), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        found[rows] = np.round(array[rows] / parts[rows])
    return found


class _Rewriter:
    """Collects the nodes and weights of a quantized graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self._quantized: set[str] = set()
        self.nodes: list[onnx.NodeProto] = []

    def product(self, node: onnx.NodeProto, low: float, high: float) -> None:
        """Replaces a product by one of integers, whose result is float32 again."""
        inputs, weight = node.input[0], self._array(node.input[1])
        if any(attribute.name == "transB" and attribute.i for attribute in node.attribute):
            weight = weight.T
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max(high - low, 1e-6) / 255
        step = self._add(f"{inputs}_scale", np.array(scale, np.float32))
        zero = self._add(f"{inputs}_zero", np.array(round(-low / scale), np.uint8))
        if inputs not in self._quantized:
            self._quantized.add(inputs)
            self.nodes.append(helper.make_node("QuantizeLinear", [inputs, step, zero], [f"{inputs}_quantized"]))
        scales = _scales(weight, 0, _LARGEST_WEIGHT)
        integers = self._add(f"{node.input[1]}_int8", _rounded(weight, scales))
        factors = self._add(f"{node.input[1]}_scales", scales[0].astype(np.float32))
        bias = list(node.input[2:])
        self.nodes.append(
            helper.make_node(
                "MatMulIntegerToFloat",
                [f"{inputs}_quantized", integers, step, factors, zero, "", *bias],
                list(node.output),
                domain="com.microsoft",
            )
        )

    def table(self, node: onnx.NodeProto) -> None:
        """Replaces a look-up of rows by one of integers and of their scales."""
        rows, (result,) = self._array(node.input[0]), node.output
        scales = _scales(rows, 1, 127)
        integers = self._add(f"{node.input[0]}_rows", _rounded(rows, scales))
        factors = self._add(f"{node.input[0]}_row_scales", scales.astype(np.float32))
        self.nodes += [
            helper.make_node("Gather", [integers, node.input[1]], [f"{result}_int8"]),
            helper.make_node("Gather", [factors, node.input[1]], [f"{result}_scale"]),
            helper.make_node("Cast", [f"{result}_int8"], [f"{result}_float"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Mul", [f"{result}_float", f"{result}_scale"], [result]),
        ]

    def finish(self) -> onnx.ModelProto:
        """Return the model with the collected nodes, and the weights that they use."""
        del self._model.graph.node[:]
        self._model.graph.node.extend(self.nodes)
        weights = list(self._weights.values())
        del self._model.graph.initializer[:]
        self._model.graph.initializer.extend(weights)
        keep_used_weights(self._model)
        need_runtime_operators(self._model)
        return self._model

    def _array(self, name: str) -> NDArray[np.float32]:
        return array_of(self._weights[name])

    def _add(self, name: str, array: NDArray[np.generic]) -> str:
        self._weights.setdefault(name, numpy_helper.from_array(array, name))
        return name
