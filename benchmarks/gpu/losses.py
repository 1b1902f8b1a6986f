"""The losses of the output layers on the device, by `benchmarks.softmax losses`."""

from functools import partial

from benchmarks.gpu.results import Context, Values
from benchmarks.losses import BASE, Cell, measure
from benchmarks.softmax import use_device

__all__ = ["run"]

_CELLS = {
    "float32": Cell(2048, 512, 32_768),
    "bfloat16": Cell(2048, 512, 32_768, bfloat16=True),
    "bfloat16, large": Cell(8192, 4096, 131_072, bfloat16=True),
}
_SMALL_CELLS = {"float32": Cell(64, 16, 128), "bfloat16": Cell(64, 16, 128, bfloat16=True)}
_SMALL_SIDES = frozenset({BASE, "lin", "mix2 (K = 4)"})


def run(context: Context) -> None:
    """Write a row of each precision: milliseconds of loss and gradients of each layer, and the memory of `lin`."""
    use_device(context.device)
    for name, cell in (_SMALL_CELLS if context.small else _CELLS).items():
        context.measure(name, partial(_times, context, cell))


def _times(context: Context, cell: Cell) -> Values:
    found = measure(cell, 1 if context.small else 7, _SMALL_SIDES if context.small else None)
    memory = {f"{name}, MB": found[name]["mb"] for name in (BASE, "lin")}
    return {**{name: values["ms"] for name, values in found.items()}, **memory}
