"""Kernels: what replaces the inner product between a word vector and a context vector.

Shapes: `N` positions, `V` classes (words), `d` hidden size.
A kernel scores every pair of a word vector `W_v` (row of `weight`, `[V, d]`) and a context
vector `h` (row of `hidden`, `[N, d]`); the softmax over `V` of the scores is the distribution.
Distances come from one matrix product (kernel paper, eq. 13), so nothing is ever `[N, V, d]`.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

__all__ = ["KERNELS", "Kernel", "at_least_float32", "build_kernel", "squared_distance"]


def squared_distance(weight: Tensor, hidden: Tensor) -> Tensor:
    """`||W_v - h||^2` for all pairs through the Gram identity (kernel paper, eq. 13).

    weight `[V, d]`, hidden `[N, d]` -> `[N, V]`, clamped at 0 because rounding makes it slightly negative.
    """
    product = at_least_float32(hidden @ weight.t())
    weight, hidden = at_least_float32(weight), at_least_float32(hidden)
    norms = (weight * weight).sum(-1) + (hidden * hidden).sum(-1, keepdim=True)
    return torch.add(norms, product, alpha=-2.0).clamp_min(0.0)


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision widened: matrix products may run in it, sums and differences of their results must not."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _positive(kernel: str, name: str, value: float) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} of kernel {kernel!r} must be a positive finite number, not {value!r}")
    return float(value)


class Kernel(nn.Module):
    """Scores `[V, d] x [N, d] -> [N, V]`; see `build_kernel` for construction by name."""

    name: str

    @property
    def hyperparameters(self) -> dict[str, float]:
        """The values this kernel was built with, as they go into a manifest."""
        return {}

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value:g}" for key, value in self.hyperparameters.items())


class Linear(Kernel):
    """`S = W_v . h`, the usual softmax layer (kernel paper, eq. 4)."""

    name = "lin"

    def forward(self, weight: Tensor, hidden: Tensor) -> Tensor:
        return at_least_float32(hidden @ weight.t())


class _DistancePower(Kernel):
    """Common part of the kernels of `D^(p/2)`, with `D = ||W_v - h||^2`."""

    def __init__(self, p: float = 2.0) -> None:
        super().__init__()
        self.p = _positive(self.name, "p", p)

    @property
    def hyperparameters(self) -> dict[str, float]:
        return {"p": self.p}

    def distance_power(self, weight: Tensor, hidden: Tensor) -> Tensor:
        distance = squared_distance(weight, hidden)
        if self.p == 2.0:
            return distance
        # Below p = 2 the slope of D^(p/2) is infinite at D = 0; the floor keeps it finite.
        return distance.clamp_min(torch.finfo(distance.dtype).tiny ** 0.5).pow(self.p / 2)


class Logarithm(_DistancePower):
    """`S = -log(||W_v - h||^p + 1)` (kernel paper, eq. 5)."""

    name = "log"

    def forward(self, weight: Tensor, hidden: Tensor) -> Tensor:
        return -torch.log1p(self.distance_power(weight, hidden))


class Power(_DistancePower):
    """`S = -||W_v - h||^p` (kernel paper, eq. 6)."""

    name = "pow"

    def forward(self, weight: Tensor, hidden: Tensor) -> Tensor:
        return -self.distance_power(weight, hidden)


KERNELS: Mapping[str, type[Kernel]] = {kernel.name: kernel for kernel in (Linear, Logarithm, Power)}


def build_kernel(name: str, **hyperparameters: float) -> Kernel:
    """A kernel by its name in the kernel paper, e.g. `build_kernel("log", p=2)`.

    Raises `ValueError` for an unknown name (naming the known ones), an unknown hyperparameter or one out of range.
    """
    if name not in KERNELS:
        raise ValueError(f"unknown kernel {name!r}; known kernels: {', '.join(KERNELS)}")
    try:
        return KERNELS[name](**hyperparameters)
    except TypeError as error:
        raise ValueError(f"kernel {name!r}: {error}") from error
