"""What the output layers cost: time and memory of losses and their gradients, interleaved in one run.

    python -m benchmarks.softmax [kernels] [memory] [sparse] [inference]

Each round runs every side once; medians over rounds and ratios of medians are printed.
"""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from training.softmax import KERNELS, GeneralizedSoftmax

Call = Callable[[], object]


def interleaved(calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """Median seconds of each call over rounds in which every call ran once."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            if number:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def forward_backward(loss: Callable[[], Tensor], *leaves: Tensor) -> Call:
    """A call that computes a loss and its gradients in the leaves."""

    def call() -> None:
        torch.autograd.grad(loss(), leaves)

    return call


def kernels(positions: int = 2048, hidden_size: int = 512, classes: int = 10_000, rounds: int = 5) -> None:
    """Forward and backward of every single kernel, as a multiple of `lin`."""
    torch.manual_seed(0)
    hidden = torch.randn(positions, hidden_size, requires_grad=True)
    target = torch.randint(classes, (positions,))
    calls: dict[str, Call] = {}
    for name in KERNELS:
        layer = GeneralizedSoftmax(classes, hidden_size, name)
        calls[name] = forward_backward(lambda layer=layer: layer.loss(hidden, target), hidden, layer.weight)
    plain = GeneralizedSoftmax(classes, hidden_size).weight
    calls["F.cross_entropy(h @ W.T)"] = forward_backward(
        lambda: functional.cross_entropy(hidden @ plain.t(), target, reduction="sum"), hidden, plain
    )
    medians = interleaved(calls, rounds)
    for name, seconds in medians.items():
        print(f"{name:<26} {1000 * seconds:8.0f} ms  {seconds / medians['lin']:5.2f} x lin")


if __name__ == "__main__":
    kernels(rounds=3)
