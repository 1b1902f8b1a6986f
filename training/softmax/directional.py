"""Kernels of directions, which depend on a context vector by its angles to the word vectors alone.

Shapes: `N` positions, `V` classes (words), `d` hidden size.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from . import elementwise
from .kernel import Kernel, Statistics, at_least_float32, squared_norm
from .margin import Margin
from .sphere import log_mean_exponential

__all__ = ["Cosine", "VonMisesFisher", "scale_of_classes"]

_POSTERIOR = 0.999
"""The probability that a class can reach with the default scale."""
_UNKNOWN_CLASSES = 16.0
"""The default scale where the number of classes is unknown, about that of 10,000 classes."""


def scale_of_classes(num_classes: int) -> float:
    """Return the least scale of cosines at which a class can have the probability 0.999.

    Lower bound of Wang et al. 2018 (CosFace, section 3.3), for class vectors as far from each other as possible.
    """
    others = max(num_classes, 2) - 1
    return others / (others + 1) * math.log(others * _POSTERIOR / (1 - _POSTERIOR))


def inverse_norm(vectors: Tensor) -> Tensor:
    """Return `1 / ||x||` of each row, 0 with gradient 0 for a row without a direction: `[M, d]` -> `[M]`."""
    square, least = squared_norm(vectors), torch.finfo(vectors.dtype).tiny ** 0.5
    return torch.where(square > least, square.clamp_min(least).rsqrt(), 0.0)


class Directional(Kernel):
    """Base of kernels that multiply word vectors with context vectors of the norm `scale`.

    `score` takes no hyperparameter, so that a learnt scale makes no difference to its derivatives.
    """

    defaults: ClassVar = {"scale": lambda d: _UNKNOWN_CLASSES}
    class_defaults: ClassVar = {"scale": scale_of_classes}
    learns_in_score = False

    def position_vectors(self, hidden: Tensor) -> Tensor:
        """Return context vectors with the norm `scale`; those without a direction stay 0: `[N, d]` -> `[N, d]`."""
        wide = at_least_float32(hidden)
        factor = self.value("scale", hidden.shape[1]) * inverse_norm(wide)
        return (wide * factor[:, None]).to(hidden.dtype)

    def position_statistics(self, hidden: Tensor) -> Statistics:
        return ()


class Cosine(Directional, fused=True):
    """Score by `S = scale cos(W_v, h)`, 0 for vectors of norm 0 (Wang et al. 2017, NormFace)."""

    name = "cos"
    has_angle = True

    def class_statistics(self, weight: Tensor) -> Statistics:
        return (inverse_norm(weight),)

    def score(self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int) -> Tensor:
        if self.differentiates_fast():
            return elementwise.scaled(products[0], classes[0])
        return products[0] * classes[0]

    def with_margin(self, scores: Tensor, margin: Margin, hidden_size: int) -> Tensor:
        scale = self.value("scale", hidden_size)
        return scale * margin(scores / scale)


class VonMisesFisher(Directional, fused=True):
    """Score by the log-density of a von Mises-Fisher distribution of `h / ||h||` (Scott et al. 2021).

        S = kappa cos(W_v, h) - log M(kappa)        kappa = scale ||W_v||

    The mean direction is that of the word vector, the concentration kappa `scale` times its norm: with `scale` 1 as in
    the paper. M is the mean of `exp(kappa x)` over the unit sphere (`sphere`), so that densities are relative to the
    uniform distribution; in the softmax that makes no difference.
    """

    name = "vmf"

    def class_statistics(self, weight: Tensor) -> Statistics:
        """Return `-log M(kappa)` `[V]`."""
        size = weight.shape[1]
        scale = self.value("scale", size)
        return (-log_mean_exponential(squared_norm(weight) * (scale * scale), size),)

    def score(self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int) -> Tensor:
        return products[0] + classes[0]
