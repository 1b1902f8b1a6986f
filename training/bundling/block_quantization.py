"""Quantization in blocks: matrices of 4 or 8 bits, multiplied by ONNX Runtime's operator `MatMulNBits`.

A block is 32 inputs of one output: its weights are `(integer - zero) * scale`, with a scale and a zero of its own. The
operator quantizes activations as well, to 8 bits with a scale for each block of each row (accuracy level 4), so that a
row of a product does not depend on the other rows of a batch. The file and the memory become smaller, and a product of
one row reads less.

Shapes: `K` inputs and `N` outputs of a matrix product, `R` rows of a table, `b` blocks of an output or a row.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import quantize_matmul_4bits, quantize_matmul_8bits

from training.bundling.onnx_tools import keep_used_weights, need_runtime_operators
from training.bundling.quantize import matrix_products, quantize_int8_weights, stored_tables
from training.bundling.weight_file import array_of

__all__ = ["BLOCK", "quantize_blocks", "quantized_blocks"]

BLOCK = 32
"""Weights of a block."""

_LEVEL = 4
"""Activations are quantized to 8 bits: faster than products in float32, where onnxruntime dequantizes weights."""

_OUTPUTS_AT_ONCE = 4096
"""Outputs of a matrix that are quantized at a time."""

Bits = Literal[4, 8]
Integers = NDArray[np.uint8]
Floats = NDArray[np.float32]


def quantize_blocks(model: onnx.ModelProto, bits: Bits) -> onnx.ModelProto:
    """Return the graph with products by stored matrices of `bits` bits in blocks, and word vectors of 8 bits.

    A matrix that is multiplied with and looked up in, with 8 bits, is stored once. Other matrices become int8 as by
    `quantize_int8_weights`.
    """
    products = {node.output[0]: node for node in matrix_products(model)}
    tables = {node.output[0]: node for node in stored_tables(model)}
    in_blocks = {node.input[1] for node in products.values()} | {node.input[0] for node in tables.values()}
    stored = quantize_int8_weights(model, keep=in_blocks)
    rewriter, nodes = _Rewriter(model, bits), list[onnx.NodeProto]()
    for node in stored.graph.node:
        if node.output[0] in products:
            nodes += rewriter.product(node)
        elif node.output[0] in tables:
            nodes.append(rewriter.table(node))
        else:
            nodes.append(node)
    del stored.graph.node[:]
    stored.graph.node.extend(nodes)
    stored.graph.initializer.extend(rewriter.weights.values())
    keep_used_weights(stored)
    need_runtime_operators(stored)
    return stored


def quantized_blocks(matrix: Floats, bits: Bits) -> tuple[Integers, Floats, Integers | None]:
    """Return the integers of a matrix `[N, K]` in blocks, `[N, b, 4 bits]`, and their scales, `[N, b]`.

    Of 4 bits, zeros are chosen for each block and returned packed, `[N, b / 2]`; two numbers are in a byte, the first
    in its lower half. Of 8 bits the zero is 128. The integers are those of onnxruntime's own quantizer.
    """
    outputs, inputs = matrix.shape
    blocks = -(-inputs // BLOCK)
    integers = np.zeros((outputs, blocks, BLOCK * bits // 8), np.uint8)
    scales = np.zeros((outputs, blocks), np.float32)
    zeros = np.zeros((outputs, -(-blocks * bits // 8)), np.uint8)
    quantize = quantize_matmul_4bits if bits == 4 else quantize_matmul_8bits
    for first in range(0, outputs, _OUTPUTS_AT_ONCE):
        rows = slice(first, first + _OUTPUTS_AT_ONCE)
        part = np.zeros((blocks * BLOCK, len(integers[rows])), np.float32)
        part[:inputs] = matrix[rows].T
        quantize(integers[rows], part, scales[rows], zeros[rows], BLOCK, part.shape[1], inputs, bits == 8)
    return integers, scales, zeros if bits == 4 else None


class _Rewriter:
    """Makes the nodes of a graph with weights in blocks, and their weights."""

    def __init__(self, model: onnx.ModelProto, bits: Bits) -> None:
        self._model = {tensor.name: tensor for tensor in model.graph.initializer}
        self._bits = bits
        self.weights: dict[str, onnx.TensorProto] = {}
        """New weights by name."""

    def product(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Yield the nodes in place of a product with a stored matrix, and of the addition of its bias."""
        matrix, bias, output = self._array(node.input[1]), node.input[2:], node.output[0]
        if not any(attribute.name == "transB" and attribute.i for attribute in node.attribute):
            matrix = matrix.T
        names = self._blocks(node.input[1], matrix, self._bits)
        yield helper.make_node(
            "MatMulNBits",
            [node.input[0], *names],
            [f"{output}_product" if bias else output],
            domain="com.microsoft",
            N=matrix.shape[0],
            K=matrix.shape[1],
            bits=self._bits,
            block_size=BLOCK,
            accuracy_level=_LEVEL,
        )
        if bias:
            yield helper.make_node("Add", [f"{output}_product", bias[0]], [output])

    def table(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """Return the node in place of a look-up of rows, which dequantizes those."""
        rows = self._array(node.input[0])
        integers, scales = self._blocks(node.input[0], rows, 8)
        name = f"{node.input[0]}_rows"
        if name not in self.weights:
            packed = numpy_helper.to_array(self.weights[integers]).reshape(len(rows), -1)[:, : rows.shape[1]]
            self.weights[name] = numpy_helper.from_array(np.ascontiguousarray(packed), name)
        return helper.make_node(
            "GatherBlockQuantized",
            [name, node.input[1], scales],
            list(node.output),
            domain="com.microsoft",
            bits=8,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def _array(self, name: str) -> Floats:
        found: Floats = array_of(self._model[name])
        return found

    def _blocks(self, name: str, matrix: Floats, bits: Bits) -> list[str]:
        """Return the names of the integers, the scales and, of 4 bits, the zeros of a matrix `[N, K]`."""
        names = [f"{name}_{part}{bits}" for part in ("blocks", "scales", "zeros")]
        if names[0] not in self.weights:
            arrays = quantized_blocks(matrix, bits)
            found = {key: array for key, array in zip(names, arrays, strict=True) if array is not None}
            self.weights |= {key: numpy_helper.from_array(array, key) for key, array in found.items()}
        return [each for each in names if each in self.weights]
