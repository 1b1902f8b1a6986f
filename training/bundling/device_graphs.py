"""Graphs for GPUs, derived from exported graphs whose int8 operators have no CUDA kernel.

Weights stay the int8 ones of the same file: `DequantizeLinear` turns them into floats, and a session with the option
`session.disable_quant_qdq` folds that when it loads. Activations are not rounded. Operators of dynamic quantization are
those of imported ONNX files that are quantized already, of older bundles, and of tasks from outside.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from training.bundling.cuda_kernels import without_kernel
from training.bundling.float16 import to_float16

__all__ = ["cuda_file", "cuda_graph", "cuda_graphs", "with_cuda_graphs"]

logger = logging.getLogger(__name__)


def cuda_file(name: str) -> str:
    """Return the file of the graph for CUDA of a graph."""
    return f"{name}.cuda.onnx"


def with_cuda_graphs(models: Mapping[str, onnx.ModelProto]) -> dict[str, onnx.ModelProto]:
    """Return graphs by name, with those for CUDA as `<name>.cuda` where they differ."""
    return {**models, **{f"{name}.cuda": model for name, model in cuda_graphs(models).items()}}


def cuda_graphs(models: Mapping[str, onnx.ModelProto], *, float16: bool = False) -> dict[str, onnx.ModelProto]:
    """Return the graphs for CUDA, by name, of those graphs that a GPU should not run as they are."""
    derived = {name: cuda_graph(model, float16=float16) for name, model in models.items()}
    return {name: model for name, model in derived.items() if model is not None}


def cuda_graph(model: onnx.ModelProto, *, float16: bool = False) -> onnx.ModelProto | None:
    """Return the graph with CUDA kernels for all operators, None where it is the given one.

    With `float16`, matrix products before the last one multiply in float16. Only small weights are read and added, so
    that the large ones may be in a file. Operators that have no kernel even so, such as those of own kernels of the
    output layer, are logged.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    rewritten = _Dequantizer(copy).run()
    if float16:
        rewritten |= to_float16(copy)
    for missing in without_kernel(copy):
        logger.warning("no CUDA kernel for %s: a GPU would leave it to the CPU", missing)
    if not rewritten:
        return None
    _remove_unused(copy)
    return copy


class _Dequantizer:
    """Replaces the operators on int8 activations of a graph by those on floats."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._makers = {output: node for node in model.graph.node for output in node.output}
        self._dequantized: set[str] = set()
        self._nodes: list[onnx.NodeProto] = []

    def run(self) -> bool:
        """Rewrite the graph and return whether anything changed."""
        rules: Mapping[str, Callable[[onnx.NodeProto], bool]] = {
            "MatMulIntegerToFloat": self._integer_product,
            "DynamicQuantizeMatMul": self._dynamic_product,
            "DynamicQuantizeLSTM": self._lstm,
            "Mul": self._scaled_product,
        }
        changed = False
        for node in self._model.graph.node:
            replaced = node.op_type in rules and rules[node.op_type](node)
            changed |= replaced
            if not replaced:
                self._nodes.append(node)
        if changed:
            del self._model.graph.node[:]
            self._model.graph.node.extend(self._nodes)
            _remove_unused(self._model)
        return changed

    def _integer_product(self, node: onnx.NodeProto) -> bool:
        """`MatMulIntegerToFloat` of an activation that was quantized in the graph."""
        quantized, weight, _, scales, _, zeros, bias = _padded(node.input, 7)
        self._product(node, self._makers[quantized].input[0], weight, scales, zeros, bias)
        return True

    def _dynamic_product(self, node: onnx.NodeProto) -> bool:
        """`DynamicQuantizeMatMul`, which quantizes the activation itself."""
        self._product(node, *_padded(node.input, 5))
        return True

    def _scaled_product(self, node: onnx.NodeProto) -> bool:
        """`Mul` that scales the result of `MatMulInteger`, as onnxruntime's dynamic quantization writes it."""
        cast, scale = (self._makers.get(name) for name in node.input)
        product = self._makers.get(cast.input[0]) if cast is not None and cast.op_type == "Cast" else None
        if product is None or product.op_type != "MatMulInteger" or scale is None:
            return False
        quantized, weight, _, zeros = _padded(product.input, 4)
        maker = self._makers[quantized]
        (scales,) = (name for name in scale.input if name != maker.output[1])
        self._product(node, maker.input[0], weight, scales, zeros, "")
        return True

    def _product(self, node: onnx.NodeProto, activation: str, weight: str, scales: str, zeros: str, bias: str) -> None:
        """Replace a product by one of floats: activation `[..., K]`, weight `[K, N]`, scales `[N]` or `[]`."""
        (result,) = node.output
        product = f"{result}_product" if bias else result
        self._append("MatMul", [activation, self._floats(weight, scales, zeros)], product)
        if bias:
            self._append("Add", [product, bias], result)

    def _floats(self, weight: str, scales: str, zeros: str) -> str:
        """Return the name of the float weight `[K, N]` of an int8 one with scales `[N]` or `[]`."""
        name = f"{weight}_float"
        if name not in self._dequantized:
            self._dequantized.add(name)
            self._append("DequantizeLinear", [weight, scales, *([zeros] if zeros else [])], name, axis=1)
        return name

    def _lstm(self, node: onnx.NodeProto) -> bool:
        """`DynamicQuantizeLSTM`, whose weights `[1, K, 4 d]` are transposed ones of `LSTM`, `[1, 4 d, K]`."""
        inputs = _padded(node.input, 12)
        for position, first in ((1, 8), (2, 10)):
            inputs[position] = self._recurrent(inputs[position], inputs[first], inputs[first + 1])
        lstm = helper.make_node("LSTM", inputs[:8], list(node.output), node.name or node.output[-1])
        lstm.attribute.extend(node.attribute)
        self._nodes.append(lstm)
        return True

    def _recurrent(self, weight: str, scales: str, zeros: str) -> str:
        """Return the name of the float weight `[1, 4 d, K]` of an int8 one `[1, K, 4 d]` with scales `[1, 4 d]`."""
        name = f"{weight}_float"
        if name not in self._dequantized:
            self._dequantized.add(name)
            axes = f"{weight}_axes"
            self._model.graph.initializer.append(numpy_helper.from_array(np.array([0]), axes))
            parts = [weight, *(part for part in (scales, zeros) if part)]
            for part in parts:
                self._append("Squeeze", [part, axes], f"{part}_squeezed")
            self._append("DequantizeLinear", [f"{part}_squeezed" for part in parts], f"{weight}_matrix", axis=1)
            self._append("Transpose", [f"{weight}_matrix"], f"{weight}_transposed", perm=[1, 0])
            self._append("Unsqueeze", [f"{weight}_transposed", axes], name)
        return name

    def _append(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        self._nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))


def _padded(names: Sequence[str], count: int) -> list[str]:
    """Return the inputs of an operator with empty names for those that are left out at the end."""
    return [*names, *[""] * (count - len(names))]


def _remove_unused(model: onnx.ModelProto) -> None:
    """Remove nodes and weights from which no output is computed."""
    used = {value.name for value in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if used & set(node.output):
            used.update(node.input)
            kept.append(node)
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(reversed(kept))
    model.graph.initializer.extend(tensors)
