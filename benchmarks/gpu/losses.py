"""The losses of the output layers on the device, by `benchmarks.softmax losses`."""

from functools import partial

from benchmarks.gpu.results import Context, Values
from benchmarks.softmax import loss_times, use_device

__all__ = ["run"]

_SIZES, _SMALL_SIZES = (2048, 512, 32_768, 7), (64, 16, 128, 1)
"""Positions, hidden size, classes and rounds."""


def run(context: Context) -> None:
    """Write a row of each precision: milliseconds of loss and gradients of each layer."""
    use_device(context.device)
    for precision in ("float32", "bfloat16"):
        context.measure(precision, partial(_times, context, precision))


def _times(context: Context, precision: str) -> Values:
    sizes = _SMALL_SIZES if context.small else _SIZES
    found = loss_times(*sizes, bfloat16=precision == "bfloat16")
    return {name: 1000 * seconds for name, seconds in found.items()}
