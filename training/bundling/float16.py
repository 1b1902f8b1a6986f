"""Matrix products of a graph in float16, where nothing that they feed needs more.

What stays float32: inputs and outputs of the graph, the residual stream, LayerNormalization, softmax and everything
after the last product, LSTM and its state. Weights are cast when a session loads the graph.
"""

from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper

from training.bundling.cuda_kernels import value_types

__all__ = ["to_float16"]

_PRODUCTS = {"MatMul", "Gemm"}
_FOLLOWING = {"Add", "Gelu", "MultiHeadAttention", "Relu", "Reshape", "Split", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators that compute in float16 if all their activations are float16."""


def to_float16(model: onnx.ModelProto) -> bool:
    """Rewrite products of activations with weights to float16, and return whether there is one."""
    casts = _Casts(model)
    products = _products(model, casts.constants)
    for node in model.graph.node:
        casts.append(node, product=node.output[0] in products)
    casts.finish()
    return bool(products)


def _products(model: onnx.ModelProto, constants: set[str]) -> set[str]:
    """Return the results of products with weights from which another such product is computed.

    The others are scores of classes, whose rounding would be that of log-probabilities.
    """
    found: set[str] = set()
    reaching: set[str] = set()
    for node in reversed(model.graph.node):
        product = node.op_type in _PRODUCTS and node.input[1] in constants
        reaches = bool(reaching & set(node.output))
        if product and reaches:
            found.add(node.output[0])
        if product or reaches:
            reaching.update(node.input)
    return found


class _Casts:
    """Collects the nodes of a graph with casts between float32 and float16."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._types = value_types(model)
        self.constants = {tensor.name for tensor in model.graph.initializer}
        for node in model.graph.node:
            if set(node.input) <= self.constants:
                self.constants.update(node.output)
        self._single = {name for name, kind in self._types.items() if kind == "float"}
        self._half: set[str] = set()
        """Values that exist in float16."""
        self._computed: set[str] = set()
        """Values that are computed in float16, not cast to it."""
        self._restored: set[str] = set()
        self._nodes: list[onnx.NodeProto] = []

    def append(self, node: onnx.NodeProto, *, product: bool) -> None:
        """Append a node, in float16 where it is such a product or follows from float16 activations."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if product or self._follows(node):
            names = [self._halved(name) if name in self._single else name for name in node.input]
            outputs = [_half(name) if name in self._single else name for name in node.output]
            self._half.update(self._single & set(node.output))
            self._computed.update(self._single & set(node.output))
            copy.input[:], copy.output[:] = names, outputs
        else:
            self._restore(node.input)
        self._nodes.append(copy)

    def finish(self) -> None:
        """Give the model the collected nodes."""
        self._restore([value.name for value in self._model.graph.output])
        del self._model.graph.node[:]
        self._model.graph.node.extend(self._nodes)

    def _follows(self, node: onnx.NodeProto) -> bool:
        inputs = node.input[:3] if node.op_type == "MultiHeadAttention" else node.input
        activations = [name for name in inputs if name in self._single and name not in self.constants]
        return node.op_type in _FOLLOWING and bool(activations) and set(activations) <= self._computed

    def _halved(self, name: str) -> str:
        if name not in self._half:
            self._half.add(name)
            self._cast(name, _half(name), TensorProto.FLOAT16)
        return _half(name)

    def _restore(self, names: Sequence[str]) -> None:
        """Cast values back to float32 that exist in float16 only."""
        for name in names:
            if name in self._computed - self._restored:
                self._restored.add(name)
                self._cast(_half(name), name, TensorProto.FLOAT)

    def _cast(self, name: str, result: str, kind: int) -> None:
        self._nodes.append(helper.make_node("Cast", [name], [result], f"{name}_cast", to=kind))


def _half(name: str) -> str:
    return f"{name}_half"
