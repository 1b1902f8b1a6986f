"""Scores and gradients of the kernels against distance (kernel paper, section 4.3 and Figure 1, for all nine).

Shapes: `d` hidden size, `n` distances.

The context vector starts at the word vector W and moves away in a straight line through the origin and beyond,

    h(x) = (1 - x / ||W||) W,    so that ||W - h|| = x.

W is the vector of a given norm whose coordinates are equal. Of the kernels of Gaussians only the means do so: the
coordinates that hold log-variances stay 0, that is variance 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from training.search.analyses.tables import Rows
from training.softmax import PAPER_KERNELS, Kernel, build_kernel

__all__ = ["Against", "Curve", "curve", "curve_rows", "curves", "word_vector"]

Against = Literal["distance", "squared-distance"]
"""`squared-distance` is the axis of the paper's figure for p = 2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A kernel along the line; each tensor `[n]`, float64."""

    kernel: str
    hyperparameters: str
    distance: Tensor
    score: Tensor
    gain: Tensor
    """Score less that at distance 0: a softmax ignores what scores have in common."""
    slope: Tensor
    """Derivative of the score by the distance."""

    @property
    def squared_slope(self) -> Tensor:
        """Return the derivative of the score by the squared distance."""
        return self.slope / (2 * self.distance)


def curve(kernel: Kernel, distance: Tensor, *, hidden_size: int, norm: float) -> Curve:
    """Compute a kernel at positive distances `[n]` from a word vector of that norm."""
    word = word_vector(kernel, hidden_size, norm)[None]

    def score(at: Tensor) -> Tensor:
        return kernel(word, (1 - at / norm)[:, None] * word)[:, 0]

    distance = distance.double().detach().requires_grad_()
    scores = score(distance)
    (slope,) = torch.autograd.grad(scores.sum(), distance)
    scores, distance = scores.detach(), distance.detach()
    gain = scores - score(torch.zeros_like(distance[:1])).detach()
    name, settings = kernel.name, kernel.extra_repr()
    return Curve(kernel=name, hyperparameters=settings, distance=distance, score=scores, gain=gain, slope=slope)


def word_vector(kernel: Kernel, hidden_size: int, norm: float) -> Tensor:
    """Return `[d]`, float64: equal coordinates, but 0 for log-variances, the last of each Gaussian's coordinates."""
    word = torch.ones(hidden_size, dtype=torch.float64)
    gaussians = {"ssg": 1, "mog": int(kernel.hyperparameters.get("num_gaussians", 1))}
    if kernel.name in gaussians:
        size = hidden_size // gaussians[kernel.name]
        word[size - 1 :: size] = 0.0
    return word * (norm / math.sqrt(word.sum()))


def curves(*, hidden_size: int = 16, norm: float = 2.5, largest: float = 5.0, points: int = 600) -> list[Curve]:
    """Return curves of the kernel paper's nine kernels; raises `ValueError` for a size that one of them cannot have."""
    # Without distance 0, where the slope of hpb jumps.
    distance = torch.linspace(0, largest, points + 1, dtype=torch.float64)[1:]
    kernels = (build_kernel(name, hidden_size=hidden_size) for name in PAPER_KERNELS)
    return [curve(kernel, distance, hidden_size=hidden_size, norm=norm) for kernel in kernels]


def curve_rows(found: Sequence[Curve]) -> Rows:
    """Return all numbers, a row for each kernel and distance."""
    slopes = ("d score / d distance", "d score / d squared distance")
    rows = Rows(["kernel", "distance", "score", "score - score at 0", *slopes])
    for each in found:
        columns = (each.distance, each.score, each.gain, each.slope, each.squared_slope)
        for numbers in zip(*(column.tolist() for column in columns), strict=True):
            rows.add([each.kernel, *numbers])
    return rows
