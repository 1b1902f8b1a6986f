"""Fused elementwise kernel functions with hand-written derivatives, for training.

Shapes: `N` positions, `V` classes.

Autograd would pass over `[N, V]` once for every operation of a kernel's formula, and keep most results. Each function
here computes score and derivative together and needs one pass back. Hyperparameters are numbers; learnt ones take the
plain formulas of `training.softmax.kernels`. Tests hold both to `training.softmax.reference`.

Allocating memory costs more than a pass over it, so inside `overwriting()` results overwrite their inputs.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "first_derivative",
    "gaussian_overlap",
    "is_transformed",
    "logarithm",
    "of_distance",
    "of_product",
    "overwrites",
    "overwriting",
    "plain_formulas",
    "poincare",
    "polynomial",
    "power",
    "radial_basis",
    "scaled",
    "takes_plain_formulas",
    "wavelet",
]

Backward = Callable[..., tuple[Tensor | None, ...]]
Slope = Callable[[Tensor], tuple[Tensor, Tensor | float]]
"""A function from distances `[N, V]`, which it may overwrite, to scores and their derivative in the distance."""

_overwrites = ContextVar("_overwrites", default=False)
_plain = ContextVar("_plain", default=False)


def first_derivative(backward: Backward) -> Backward:
    """Let a backward pass raise `RuntimeError` where its result is to be differentiated again.

    `torch.autograd.function.once_differentiable` raises only if the incoming gradient can be differentiated itself.
    """

    @functools.wraps(backward)
    def checked(*arguments: Any) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # as with create_graph=True
            raise RuntimeError(
                "fused functions have no second derivatives: compute scores inside `with plain_formulas():` of this "
                "package, or differentiate `GeneralizedSoftmax.loss`, which has them"
            )
        return backward(*arguments)

    return checked


def overwrites() -> bool:
    """Return whether functions may overwrite their inputs, as inside `overwriting()`."""
    return _overwrites.get()


@contextlib.contextmanager
def overwriting() -> Iterator[None]:
    """Let functions called within overwrite products, and their backward pass, which runs once, the gradient."""
    token = _overwrites.set(True)
    try:
        yield
    finally:
        _overwrites.reset(token)


def takes_plain_formulas() -> bool:
    """Return whether kernels compute their plain formulas, as inside `plain_formulas()`.

    `torch.compile`, which fuses them, and the transformations of `torch.func` get them too.
    """
    return torch.compiler.is_compiling() or is_transformed() or _plain.get()


def is_transformed() -> bool:
    """Return whether `torch.func.grad`, `vmap` or the like is at work, which batches or differentiates each step."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active


@contextlib.contextmanager
def plain_formulas() -> Iterator[None]:
    """Let kernels compute their plain formulas, which can be differentiated twice, instead of fused functions."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def power(distance: Tensor, p: float) -> tuple[Tensor, Tensor | float]:
    """Return `-D^(p/2)` and its derivative in the distance D."""
    if p == 2.0:
        return distance.neg_(), -1.0
    raised, slope = _raised(distance, p)
    return raised.neg_(), slope.neg_()


def logarithm(distance: Tensor, p: float) -> tuple[Tensor, Tensor | float]:
    """Return `-log(1 + D^(p/2))` and its derivative in the distance D."""
    if p == 2.0:
        inverse = torch.add(distance, 1.0).reciprocal_()
        return distance.log1p_().neg_(), inverse.neg_()
    raised, slope = _raised(distance, p)
    slope.div_(raised + 1.0)
    return raised.log1p_().neg_(), slope.neg_()


def radial_basis(distance: Tensor, gamma: float) -> tuple[Tensor, Tensor | float]:
    """Return `exp(-gamma D)` and its derivative in the distance D."""
    score = distance.mul_(-gamma).exp_()
    return score, score * -gamma


def wavelet(distance: Tensor, a: float, b: float) -> tuple[Tensor, Tensor | float]:
    """Return `cos(D / a) exp(-D / b)` and its derivative in the distance D."""
    angle = distance / a
    decay = distance.mul_(-1.0 / b).exp_()
    sine = torch.sin(angle).mul_(decay)
    score = angle.cos_().mul_(decay)
    return score, sine.mul_(-1.0 / a).add_(score, alpha=-1.0 / b)


def polynomial(product: Tensor, alpha: float, c: float, p: int) -> tuple[Tensor, Tensor | float]:
    """Return `(alpha x + c)^p` and its derivative in the inner product x."""
    base = product.mul_(alpha).add_(c)
    if p == 1:
        return base, alpha
    slope = base if p == 2 else base.pow(p - 1)
    return slope * base, slope.mul_(p * alpha)


def _raised(distance: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Return `D^(p/2)` and its derivative; D is kept above 0, where the derivative is infinite for p < 2."""
    distance.clamp_min_(torch.finfo(distance.dtype).tiny ** 0.5)
    raised = distance.pow(p / 2)
    return raised, torch.div(raised, distance).mul_(p / 2)


def of_distance(function: Slope, product: Tensor, class_norm: Tensor, position_norm: Tensor) -> Tensor:
    """Apply a function to `||W_v - h||^2`, from products `-2 W_v . h` `[N, V]` and squared norms `[V]`, `[N]`."""
    score: Tensor = _OfDistance.apply(_overwrites.get(), function, product, class_norm, position_norm)  # type: ignore[no-untyped-call]
    return score


class _OfDistance(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, overwrite: bool, function: Slope, product: Tensor, class_norm: Tensor, position_norm: Tensor
    ) -> Tensor:
        distance = torch.add(class_norm, product, out=_into(overwrite, product))
        score, slope = function(distance.add_(position_norm[:, None]).clamp_min_(0.0))
        # All large tensors are saved like this, so that checkpointing can drop them.
        ctx.overwrite = overwrite
        ctx.save_for_backward(_as_tensor(slope, score))
        return score

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_distance = torch.mul(grad, ctx.saved_tensors[0], out=_into(ctx.overwrite, grad))
        return None, None, by_distance, by_distance.sum(0), by_distance.sum(1)


def of_product(function: Slope, product: Tensor) -> Tensor:
    """Apply a function to inner products `[N, V]`."""
    score: Tensor = _OfProduct.apply(_overwrites.get(), function, product)  # type: ignore[no-untyped-call]
    return score


class _OfProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, overwrite: bool, function: Slope, product: Tensor) -> Tensor:
        score, slope = function(product.detach() if overwrite else product.clone())
        ctx.overwrite = overwrite
        ctx.save_for_backward(_as_tensor(slope, score))
        return score

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return None, None, torch.mul(grad, slope, out=_into(ctx.overwrite, grad))


def scaled(product: Tensor, factor: Tensor) -> Tensor:
    """Return inner products times a factor of each class: `[N, V]`, `[V]` -> `[N, V]`."""
    score: Tensor = _Scaled.apply(_overwrites.get(), product, factor)  # type: ignore[no-untyped-call]
    return score


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, overwrite: bool, product: Tensor, factor: Tensor) -> Tensor:
        ctx.overwrite = overwrite
        ctx.save_for_backward(product if ctx.needs_input_grad[2] else product.new_empty(0), factor)
        return torch.mul(product, factor)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, factor = ctx.saved_tensors
        wanted = ctx.needs_input_grad[2]
        by_factor = torch.mul(product, grad, out=_into(ctx.overwrite, product)).sum(0) if wanted else None
        return None, torch.mul(grad, factor, out=_into(ctx.overwrite, grad)), by_factor


def _into(overwrite: bool, tensor: Tensor) -> Tensor | None:
    """Return the `out` argument: the tensor itself to overwrite it, None for new memory."""
    return tensor.detach() if overwrite else None


def _as_tensor(slope: Tensor | float, like: Tensor) -> Tensor:
    return slope.to(like.dtype) if isinstance(slope, Tensor) else like.new_full((), slope)


def _scaled_product(grad: Tensor, slope: Tensor, factor: float, out: Tensor | None) -> Tensor:
    """Return `factor * grad * slope`, in one pass over `[N, V]`."""
    return torch.addcmul(grad.new_zeros(()), grad, slope, value=factor, out=out)


def gaussian_overlap(products: Sequence[Tensor], sides: Sequence[Sequence[Tensor]], dimensions: int) -> Tensor:
    """Return the sum over pairs of spherical Gaussians of the log of the integral of their product.

    Each pair has `-2` times its means' inner product, `[N, V]`, and as its sides the word's squared norm and
    log-variance, `[V]` each, and the position's, `[N]` each.
    """
    flat = [statistic for side in sides for statistic in side]
    score: Tensor = _GaussianOverlap.apply(_overwrites.get(), dimensions, len(products), *products, *flat)  # type: ignore[no-untyped-call]
    return score


class _GaussianOverlap(torch.autograd.Function):
    # 2 pi goes into the variances and, with the -1/2 before it, into the distance; e into the variances, which takes 1
    # from their logarithm and makes up for the 1 in `slope`. There they cost nothing.
    FACTOR = 2 * math.pi * math.e

    @classmethod
    def shares(cls, class_variance: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return terms `[V]` and `[N, 1]`, whose sum is a pair's variance times the factor."""
        return class_variance.exp().mul_(cls.FACTOR), variance.exp().mul_(cls.FACTOR)[:, None]

    @staticmethod
    def forward(ctx: Any, overwrite: bool, dimensions: int, count: int, *tensors: Tensor) -> Tensor:
        cls, half, total = _GaussianOverlap, 0.5 * dimensions, None
        ctx.overwrite, slopes = overwrite, []
        for product, *side in zip(tensors[:count], *(tensors[count + i :: 4] for i in range(4)), strict=True):
            class_norm, class_variance, norm, variance = side
            inverse = torch.add(*cls.shares(class_variance, variance)).reciprocal_()
            factor = -0.5 * cls.FACTOR
            slope = torch.add(factor * class_norm, product, alpha=factor, out=_into(overwrite, product))
            slope.add_((factor * norm)[:, None]).clamp_max_(0.0).mul_(inverse).add_(half)
            slopes.append(slope)
            logarithm = inverse.log_()
            if total is None:
                total = torch.add(slope, logarithm, alpha=half, out=logarithm)
            else:
                total.add_(logarithm, alpha=half).add_(slope)
        ctx.count = count
        ctx.save_for_backward(*slopes, *tensors[count:])
        assert total is not None
        return total

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_products: list[Tensor] = []
        by_sides: list[Tensor] = []
        saved = ctx.saved_tensors
        sides = saved[ctx.count :]
        for slope, class_variance, variance in zip(saved[: ctx.count], sides[1::4], sides[3::4], strict=True):
            class_share, share = _GaussianOverlap.shares(class_variance, variance)
            inverse = (class_share + share).reciprocal_()  # again, because it would take as much memory as the slope
            # Negative slope in the logarithm of the sum of the variances.
            by_both = torch.mul(grad, slope, out=_into(ctx.overwrite, slope))
            # In this order, because `inverse * class_share` is at most 1 and the others can be huge.
            by_class = (inverse * class_share).mul_(by_both)
            by_position = by_class.sum(1).sub_(by_both.sum(1))
            by_product = _scaled_product(grad, inverse, -0.5 * _GaussianOverlap.FACTOR, _into(ctx.overwrite, slope))
            by_sides += [by_product.sum(0), by_class.sum(0).neg_(), by_product.sum(1), by_position]
            by_products.append(by_product)
        return None, None, None, *by_products, *by_sides


def poincare(product: Tensor, classes: tuple[Tensor, ...], positions: tuple[Tensor, ...]) -> Tensor:
    """Return the negative Poincare distance `-acosh(1 + x)`, `x = 2 (norm + class_norm - 2 product) / (class_gap gap)`.

    classes are `-2 scale / class_gap`, `class_norm / class_gap`, `1 / class_gap`, `[V]` each; the scale maps a
    word into the ball, which products `[N, V]` do not include; positions are `norm` and `2 / gap`, `[N]` each.
    """
    score: Tensor = _Poincare.apply(_overwrites.get(), product, *classes, *positions)  # type: ignore[no-untyped-call]
    return score


class _Poincare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, overwrite: bool, product: Tensor, *sides: Tensor) -> Tensor:
        factor, class_norm, class_gap, norm, gap = sides
        excess = torch.addcmul(class_norm, norm[:, None], class_gap).addcmul_(product, factor)
        # acosh(1 + x) = log1p(x + sqrt(x (x + 2))); the floor keeps the root's slope finite at distance 0.
        excess.clamp_min_(torch.finfo(excess.dtype).tiny ** 0.5).mul_(gap[:, None])
        root = torch.addcmul(excess, excess, excess, value=0.5).sqrt_()  # lacks the factor sqrt(2)
        ctx.overwrite = overwrite
        ctx.save_for_backward(product, root, *sides)
        return torch.add(excess, root, alpha=math.sqrt(2), out=excess).log1p_().neg_()

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, root, factor, class_norm, class_gap, norm, gap = ctx.saved_tensors
        scale = gap * -math.sqrt(0.5)
        by_distance = torch.div(grad, root, out=_into(ctx.overwrite, root)).mul_(scale[:, None])
        by_factor = torch.mul(product, by_distance, out=_into(ctx.overwrite, product))
        # `mv` and not `@`, which autocast would run in half precision.
        by_norm = torch.mv(by_distance, class_gap)
        by_gap = torch.mv(by_distance, class_norm) + norm * by_norm + torch.mv(by_factor, factor)
        return (
            None,
            torch.mul(by_distance, factor, out=_into(ctx.overwrite, grad)),
            by_factor.sum(0),
            by_distance.sum(0),
            torch.mv(by_distance.t(), norm),
            by_norm,
            by_gap / gap,
        )
