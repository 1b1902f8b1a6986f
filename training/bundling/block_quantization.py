"""Quantization in blocks: matrices of 4 or 8 bits, multiplied by ONNX Runtime's operator `MatMulNBits`.

A block is 32 to 128 inputs of one output: its weights are `(integer - zero) * scale`, with a scale and a zero of its
own. The operator quantizes activations as well, to 8 bits with a scale for each block of each row (accuracy level 4),
so that a row of a product does not depend on the other rows of a batch. The file and the memory become smaller, and a
product of one row reads less. `training.bundling.split_activations` has activations of 16 bits.

Shapes: `K` inputs and `N` outputs of a matrix product, `R` rows of a table, `b` blocks of `s` inputs of an output or a
row.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import quantize_matmul_4bits, quantize_matmul_8bits

from training.bundling.onnx_tools import keep_used_weights, need_runtime_operators
from training.bundling.quantize import matrix_products, quantize_int8_weights, stored_tables
from training.bundling.split_activations import ActivationSplitter, padded
from training.bundling.weight_file import array_of

__all__ = ["BLOCK", "Bits", "block_of", "quantize_blocks", "quantized_blocks"]

BLOCK = 32
"""The smallest number of weights of a block."""

_LEVEL = 4
"""Activations are quantized to 8 bits. With those in float32, onnxruntime dequantizes a matrix of 8 bits for each
product, which takes many times as long as the product of one row with a matrix in float32."""

_OUTPUTS_AT_ONCE = 4096
"""Outputs of a matrix that are quantized at a time."""

Bits = Literal[4, 8]
Integers = NDArray[np.uint8]
Floats = NDArray[np.float32]


def quantize_blocks(
    model: onnx.ModelProto, bits: Bits, *, largest_block: int = BLOCK, split_activations: bool = False
) -> onnx.ModelProto:
    """Return the graph with products by stored matrices of `bits` bits in blocks, and word vectors of 8 bits.

    Blocks have `block_of(K, largest_block)` weights. With `split_activations`, activations have 16 bits in place of 8.
    A matrix that is multiplied with and looked up in, with 8 bits, is stored once if `K` is a multiple of 32. Other
    matrices become int8 as by `quantize_int8_weights`.
    """
    products = {node.output[0]: node for node in matrix_products(model)}
    tables = {node.output[0]: node for node in stored_tables(model)}
    in_blocks = {node.input[1] for node in products.values()} | {node.input[0] for node in tables.values()}
    stored = quantize_int8_weights(model, keep=in_blocks)
    splitter = ActivationSplitter() if split_activations else None
    rewriter, nodes = _Rewriter(model, bits, largest_block, splitter), list[onnx.NodeProto]()
    for node in stored.graph.node:
        if node.output[0] in products:
            nodes += rewriter.product(node)
        elif node.output[0] in tables:
            nodes.append(rewriter.table(node))
        else:
            nodes.append(node)
    del stored.graph.node[:]
    stored.graph.node.extend(nodes)
    stored.graph.initializer.extend([*rewriter.weights.values(), *(splitter.weights.values() if splitter else ())])
    keep_used_weights(stored)
    need_runtime_operators(stored)
    return stored


def block_of(inputs: int, largest: int) -> int:
    """Return the number of weights of a block: `largest`, halved until it divides `K` or is 32."""
    while largest > BLOCK and inputs % largest:
        largest //= 2
    return largest


def quantized_blocks(matrix: Floats, bits: Bits, block: int = BLOCK) -> tuple[Integers, Floats, Integers | None]:
    """Return the integers of a matrix `[N, K]` in blocks, `[N, b, s bits / 8]`, and their scales, `[N, b]`.

    Of 4 bits, zeros are chosen for each block and returned packed, `[N, b / 2]`; two numbers are in a byte, the first
    in its lower half. Of 8 bits the zero is 128. The integers are those of onnxruntime's own quantizer.
    """
    outputs, inputs = matrix.shape
    blocks = -(-inputs // block)
    integers = np.zeros((outputs, blocks, block * bits // 8), np.uint8)
    scales = np.zeros((outputs, blocks), np.float32)
    zeros = np.zeros((outputs, -(-blocks * bits // 8)), np.uint8)
    quantize = quantize_matmul_4bits if bits == 4 else quantize_matmul_8bits
    for first in range(0, outputs, _OUTPUTS_AT_ONCE):
        rows = slice(first, first + _OUTPUTS_AT_ONCE)
        part = np.zeros((blocks * block, len(integers[rows])), np.float32)
        part[:inputs] = matrix[rows].T
        quantize(integers[rows], part, scales[rows], zeros[rows], block, part.shape[1], inputs, bits == 8)
    return integers, scales, zeros if bits == 4 else None


class _Rewriter:
    """Makes the nodes of a graph with weights in blocks, and their weights."""

    def __init__(self, model: onnx.ModelProto, bits: Bits, largest: int, splitter: ActivationSplitter | None) -> None:
        self._model = {tensor.name: tensor for tensor in model.graph.initializer}
        self._bits, self._largest, self._splitter = bits, largest, splitter
        self.weights: dict[str, onnx.TensorProto] = {}
        """New weights by name."""

    def product(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Yield the nodes in place of a product with a stored matrix, and of the addition of its bias."""
        matrix, bias, output = self._array(node.input[1]), node.input[2:], node.output[0]
        if not any(attribute.name == "transB" and attribute.i for attribute in node.attribute):
            matrix = matrix.T
        names, parts, inputs = self._blocks(node.input[1], matrix, self._bits), [node.input[0]], matrix.shape[1]
        block = block_of(inputs, self._largest)
        if self._splitter is not None:
            yield from self._splitter.nodes(node.input[0], inputs, block)
            parts, inputs = [*self._splitter.parts(node.input[0])], padded(inputs, block)
        terms = [*(f"{output}_product{number}" for number in range(len(parts))), *bias]
        for part, term in zip(parts, terms if len(terms) > 1 else [output], strict=False):
            yield helper.make_node(
                "MatMulNBits",
                [part, *names],
                [term],
                domain="com.microsoft",
                N=matrix.shape[0],
                K=inputs,
                bits=self._bits,
                block_size=block,
                accuracy_level=_LEVEL,
            )
        yield from _additions(terms, output)

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
            block_size=block_of(rows.shape[1], self._largest),
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
            arrays = quantized_blocks(matrix, bits, block_of(matrix.shape[1], self._largest))
            found = {key: array for key, array in zip(names, arrays, strict=True) if array is not None}
            self.weights |= {key: numpy_helper.from_array(array, key) for key, array in found.items()}
        return [each for each in names if each in self.weights]


def _additions(terms: Sequence[str], output: str) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that add two terms or more; none of one."""
    before = terms[0]
    for number, term in enumerate(terms[1:], 2):
        after = output if number == len(terms) else f"{output}_sum{number}"
        yield helper.make_node("Add", [before, term], [after])
        before = after
