"""Elementwise kernel functions with gradients written out, for training.

Shapes: `N` positions, `V` classes.

Autograd would walk over `[N, V]` once for every operation of a kernel's formula, and keep most results. Each function
here computes score and slope together and walks back once. Hyperparameters are numbers; learnt ones take the plain
formulas of `training.softmax.kernels`, which these functions must equal (the tests hold one against the other).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["gaussian_overlap", "logarithm", "of_distance", "poincare", "power", "radial_basis", "wavelet"]

Slope = Callable[[Tensor], tuple[Tensor, Tensor | float]]
"""Distances `[N, V]`, which may be overwritten, to scores and their derivative in the distance."""


def power(p: float) -> Slope:
    """`-D^(p/2)`."""

    def function(distance: Tensor) -> tuple[Tensor, Tensor | float]:
        if p == 2.0:
            return distance.neg_(), -1.0
        raised, slope = _raised(distance, p)
        return raised.neg_(), slope.neg_()

    return function


def logarithm(p: float) -> Slope:
    """`-log(1 + D^(p/2))`."""

    def function(distance: Tensor) -> tuple[Tensor, Tensor | float]:
        if p == 2.0:
            inverse = torch.add(distance, 1.0).reciprocal_()
            return distance.log1p_().neg_(), inverse.neg_()
        raised, slope = _raised(distance, p)
        slope.div_(raised + 1.0)
        return raised.log1p_().neg_(), slope.neg_()

    return function


def radial_basis(gamma: float) -> Slope:
    """`exp(-gamma D)`."""

    def function(distance: Tensor) -> tuple[Tensor, Tensor | float]:
        score = distance.mul_(-gamma).exp_()
        return score, score * -gamma

    return function


def wavelet(a: float, b: float) -> Slope:
    """`cos(D / a) exp(-D / b)`."""

    def function(distance: Tensor) -> tuple[Tensor, Tensor | float]:
        angle = distance / a
        decay = distance.mul_(-1.0 / b).exp_()
        sine = torch.sin(angle).mul_(decay)
        score = angle.cos_().mul_(decay)
        return score, sine.mul_(-1.0 / a).add_(score, alpha=-1.0 / b)

    return function


def _raised(distance: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """`D^(p/2)` and its slope; D is kept off 0, where the slope below p = 2 is infinite."""
    distance.clamp_min_(torch.finfo(distance.dtype).tiny ** 0.5)
    raised = distance.pow(p / 2)
    return raised, torch.div(raised, distance).mul_(p / 2)


def of_distance(function: Slope, product: Tensor, class_norm: Tensor, position_norm: Tensor) -> Tensor:
    """A function of `||W_v - h||^2` from inner products `[N, V]` and squared norms `[V]`, `[N]`."""
    score: Tensor = _OfDistance.apply(function, product, class_norm, position_norm)  # type: ignore[no-untyped-call]
    return score


def _distance(product: Tensor, class_norm: Tensor, position_norm: Tensor) -> Tensor:
    return torch.add(class_norm, product, alpha=-2.0).add_(position_norm[:, None]).clamp_min_(0.0)


class _OfDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Slope, product: Tensor, class_norm: Tensor, position_norm: Tensor) -> Tensor:
        score, ctx.slope = function(_distance(product, class_norm, position_norm))
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_product = _scaled_product(grad, ctx.slope, -2.0)
        return None, by_product, by_product.sum(0).mul_(-0.5), by_product.sum(1).mul_(-0.5)


def _scaled_product(grad: Tensor, slope: Tensor | float, factor: float) -> Tensor:
    """`factor * grad * slope`, in one walk over `[N, V]`."""
    if isinstance(slope, Tensor):
        return torch.addcmul(grad.new_zeros(()), grad, slope, value=factor)
    return grad * (factor * slope)


def gaussian_overlap(
    product: Tensor, class_norm: Tensor, class_variance: Tensor, norm: Tensor, variance: Tensor, dimensions: int
) -> Tensor:
    """log of the integral of two spherical Gaussians' product, from means' inner products `[N, V]`.

    The variances come as their logarithms, `[V]` and `[N]`.
    """
    score: Tensor = _GaussianOverlap.apply(product, class_norm, class_variance, norm, variance, dimensions)  # type: ignore[no-untyped-call]
    return score


class _GaussianOverlap(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        product: Tensor,
        class_norm: Tensor,
        class_variance: Tensor,
        norm: Tensor,
        variance: Tensor,
        dimensions: int,
    ) -> Tensor:
        # 2 pi goes into the variances and the distance, where it costs nothing.
        class_share = class_variance.exp().mul_(2 * math.pi)
        inverse = (class_share + (variance.exp() * (2 * math.pi))[:, None]).reciprocal_()
        distance = torch.add(2 * math.pi * class_norm, product, alpha=-4 * math.pi)
        scaled = distance.add_(2 * math.pi * norm[:, None]).clamp_min_(0.0).mul_(inverse)
        ctx.save_for_backward(inverse, scaled, class_share)
        ctx.dimensions = dimensions
        return torch.log(inverse).mul_(0.5 * dimensions).add_(scaled, alpha=-0.5)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inverse, scaled, class_share = ctx.saved_tensors
        by_product = _scaled_product(grad, inverse, 2 * math.pi)
        by_both = torch.addcmul(grad * (-0.5 * ctx.dimensions), grad, scaled, value=0.5)
        by_class = (inverse * class_share).mul_(by_both)
        return (
            by_product,
            by_product.sum(0).mul_(-0.5),
            by_class.sum(0),
            by_product.sum(1).mul_(-0.5),
            by_both.sum(1).sub_(by_class.sum(1)),
            None,
        )


def poincare(product: Tensor, classes: tuple[Tensor, ...], positions: tuple[Tensor, ...]) -> Tensor:
    """Negative Poincare distance; classes and positions are scale, squared norm and gap `1 - norm`, `[V]` and `[N]`."""
    score: Tensor = _Poincare.apply(product, *classes, *positions)  # type: ignore[no-untyped-call]
    return score


class _Poincare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, product: Tensor, *sides: Tensor) -> Tensor:
        class_scale, class_norm, class_gap, scale, norm, gap = sides
        scaled = product * class_scale
        excess = torch.add(class_norm, scaled * scale[:, None], alpha=-2.0).add_(norm[:, None]).clamp_min_(0.0)
        excess.div_(class_gap).mul_(2.0 / gap[:, None])
        root = torch.addcmul(2.0 * excess, excess, excess).clamp_min_(torch.finfo(excess.dtype).tiny ** 0.5).sqrt_()
        ctx.save_for_backward(product, excess, root, *sides)
        return torch.add(excess, root).log1p_().neg_()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        product, excess, root, class_scale, _, class_gap, scale, _, gap = ctx.saved_tensors
        by_excess = torch.div(grad, root).neg_()
        by_gap = excess * by_excess
        by_distance = by_excess.div_(class_gap).mul_(2.0 / gap[:, None])
        by_scale = product * by_distance
        return (
            (by_distance * (-2.0 * class_scale)).mul_(scale[:, None]),
            by_scale.t() @ (-2.0 * scale),
            by_distance.sum(0),
            by_gap.sum(0) / -class_gap,
            by_scale @ (-2.0 * class_scale),
            by_distance.sum(1),
            by_gap.sum(1) / -gap,
        )
