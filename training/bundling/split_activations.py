"""Activations as sums of two numbers of 8 bits, for products that quantize activations to 8 bits in blocks.

An activation `x` is split into `high`, which is `x` rounded to 8 bits with the scale of its block, and
`low = x - high`. The product quantizes both, with scales of their own: `high` without an error, for it is a multiple of
that scale, and `low`, whose largest number is half a step of `high`, with steps that are at least 254 times as small.
The sum of both products has the precision of activations of 16 bits.

Shapes: `K` inputs of a matrix product, `b` blocks of `s` inputs, `b s >= K`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["ActivationSplitter", "Parts", "padded"]

_LARGEST = 127
"""The largest integer of a quantized activation."""
_SMALLEST_STEP = 1e-30
"""Lower bound of the steps of a block, which may have zeros only."""


class Parts(NamedTuple):
    """Names of the parts of an activation, `[..., b s]`."""

    high: str
    low: str


def padded(inputs: int, block: int) -> int:
    """Return `b s` of `K` and `s`."""
    return -(-inputs // block) * block


class ActivationSplitter:
    """Makes the nodes of a graph that split activations, each of them once."""

    def __init__(self) -> None:
        self._parts: dict[str, Parts] = {}
        """Parts that were made, by the name of the activation."""
        self.weights: dict[str, onnx.TensorProto] = {}
        """The constants that the nodes read, by name."""

    def parts(self, name: str) -> Parts:
        """Return the parts of an activation whose nodes were made."""
        return self._parts[name]

    def nodes(self, name: str, inputs: int, block: int) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that split an activation `[..., K]` in blocks of `s`: none where they were made before."""
        if name in self._parts:
            return
        x, high, low = name, f"{name}_high", f"{name}_low"
        self._parts[name] = Parts(high, low)
        if padding := padded(inputs, block) - inputs:
            x = f"{name}_padded"
            widths, axis = self._constant(f"widths{padding}", [0, padding]), self._constant("last_axis", [-1])
            yield helper.make_node("Pad", [name, widths, "", axis], [x])
        yield helper.make_node("Reshape", [x, self._constant(f"blocks{block}", [-1, block])], [f"{x}_blocks"])
        yield from self._rounded(f"{x}_blocks")
        yield helper.make_node("Shape", [x], [f"{x}_shape"])
        yield helper.make_node("Reshape", [f"{x}_blocks_rounded", f"{x}_shape"], [high])
        yield helper.make_node("Sub", [x, high], [low])

    def _rounded(self, x: str) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that round the blocks `[M, s]` to 8 bits, each with the scale of its largest number."""
        inverse, smallest = self._constant("inverse", 1 / _LARGEST), self._constant("smallest_step", _SMALLEST_STEP)
        yield helper.make_node("Abs", [x], [f"{x}_sizes"])
        yield helper.make_node("ReduceMax", [f"{x}_sizes", self._constant("last_axis", [-1])], [f"{x}_largest"])
        yield helper.make_node("Mul", [f"{x}_largest", inverse], [f"{x}_scales"])
        yield helper.make_node("Max", [f"{x}_scales", smallest], [f"{x}_steps"])
        yield helper.make_node("Div", [x, f"{x}_steps"], [f"{x}_in_steps"])
        yield helper.make_node("Round", [f"{x}_in_steps"], [f"{x}_integers"])
        yield helper.make_node("Mul", [f"{x}_integers", f"{x}_steps"], [f"{x}_rounded"])

    def _constant(self, name: str, value: list[int] | float) -> str:
        name = f"activation_{name}"
        array = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        self.weights.setdefault(name, numpy_helper.from_array(array, name))
        return name
