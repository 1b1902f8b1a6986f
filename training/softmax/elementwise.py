"""Fused elementwise kernel functions with hand-written derivatives, for training.

Shapes: `N` positions, `V` classes.

Autograd would pass over `[N, V]` once for every operation of a kernel's formula, and keep most results. Each function
here computes score and derivative together and needs one pass back. Hyperparameters are numbers; learnt ones take the
plain formulas of `training.softmax.kernels`. Tests hold both to `training.softmax.reference`.

Allocating memory costs more than a pass over it, so inside `overwriting()` results overwrite their inputs, and what
they need besides is taken from a workspace.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from .memory import Pool, Workspace

__all__ = [
    "exponential_of_logarithm",
    "first_derivative",
    "gaussian_overlap",
    "is_transformed",
    "logarithm",
    "norm_and_last",
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
    "squared_norm",
    "takes_plain_formulas",
    "wavelet",
]

Backward = Callable[..., tuple[Tensor | None, ...]]
Slope = Callable[[Tensor], tuple[Tensor, Tensor | None, float]]
"""A function from distances `[N, V]`, which it may overwrite, to scores or their exponentials, and the derivative of
the scores.

The derivative is a matrix, or all ones where there is none, times a number.
"""

_workspace: ContextVar[Workspace | None] = ContextVar("_workspace", default=None)
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
    return not torch.compiler.is_compiling() and _workspace.get() is not None


@contextlib.contextmanager
def overwriting(workspace: Workspace | None = None) -> Iterator[None]:
    """Let functions called within overwrite products, and their backward pass, which runs once, the gradient.

    They take memory from the workspace, which must not be released before the backward pass has run; without one it is
    new.
    """
    token = _workspace.set(Pool().workspace() if workspace is None else workspace)
    try:
        yield
    finally:
        _workspace.reset(token)


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


def power(distance: Tensor, p: float) -> tuple[Tensor, Tensor | None, float]:
    """Return `-D^(p/2)` and its derivative in the distance D."""
    if p == 2.0:
        return distance.neg_(), None, -1.0
    raised, slope = _raised(distance, p)
    return raised.neg_(), slope, -1.0


def logarithm(distance: Tensor, p: float) -> tuple[Tensor, Tensor | None, float]:
    """Return `-log(1 + D^(p/2))` and its derivative in the distance D."""
    inverse, slope = _inverse(distance, p)
    return torch.log(inverse, out=_like(inverse)), slope, -1.0


def exponential_of_logarithm(distance: Tensor, p: float) -> tuple[Tensor, Tensor | None, float]:
    """Return the exponential of `logarithm`, `1 / (1 + D^(p/2))`, and the derivative of `logarithm`."""
    inverse, slope = _inverse(distance, p)
    return _like(inverse).copy_(inverse) if slope is inverse else inverse, slope, -1.0


def _inverse(distance: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Return `1 / (1 + D^(p/2))` and the derivative of `log(1 + D^(p/2))` in D: the same tensor where p is 2."""
    if p == 2.0:
        inverse = distance.add_(1.0).reciprocal_()
        return inverse, inverse
    raised, slope = _raised(distance, p)
    inverse = raised.add_(1.0).reciprocal_()
    return inverse, slope.mul_(inverse)


def radial_basis(distance: Tensor, gamma: float) -> tuple[Tensor, Tensor | None, float]:
    """Return `exp(-gamma D)` and its derivative in the distance D."""
    score = distance.mul_(-gamma).exp_()
    return score, _like(score).copy_(score), -gamma


def wavelet(distance: Tensor, a: float, b: float) -> tuple[Tensor, Tensor | None, float]:
    """Return `cos(D / a) exp(-D / b)` and its derivative in the distance D."""
    angle = torch.mul(distance, 1.0 / a, out=_like(distance))
    decay = distance.mul_(-1.0 / b).exp_()
    sine = torch.sin(angle, out=_like(angle)).mul_(decay)
    score = angle.cos_().mul_(decay)
    return score, sine.add_(score, alpha=a / b), -1.0 / a


def polynomial(product: Tensor, alpha: float, c: float, p: int) -> tuple[Tensor, Tensor | None, float]:
    """Return `(alpha x + c)^p` and its derivative in the inner product x."""
    base = product.mul_(alpha).add_(c)
    if p == 1:
        return base, None, alpha
    slope = base if p == 2 else torch.pow(base, p - 1, out=_like(base))
    return torch.mul(slope, base, out=_like(base)), slope, p * alpha


def _raised(distance: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Return `D^(p/2)` and its derivative; D is kept above 0, where the derivative is infinite for p < 2."""
    distance.clamp_min_(torch.finfo(distance.dtype).tiny ** 0.5)
    raised = torch.pow(distance, p / 2, out=_like(distance))
    return raised, torch.div(raised, distance, out=distance).mul_(p / 2)


def of_distance(function: Slope, product: Tensor, class_norm: Tensor, position_norm: Tensor) -> Tensor:
    """Apply a function to `||W_v - h||^2`, from products `-2 W_v . h` `[N, V]` and squared norms `[V]`, `[N]`."""
    score: Tensor = _OfDistance.apply(_workspace.get(), function, product, class_norm, position_norm)  # type: ignore[no-untyped-call]
    return score


class _OfDistance(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        workspace: Workspace | None,
        function: Slope,
        product: Tensor,
        class_norm: Tensor,
        position_norm: Tensor,
    ) -> Tensor:
        distance = torch.add(class_norm, product, out=_into(workspace, product))
        score, slope, ctx.factor = function(distance.add_(position_norm[:, None]).clamp_min_(0.0))
        # All large tensors are saved like this, so that checkpointing can drop them.
        ctx.workspace = workspace
        ctx.save_for_backward(slope)
        return score

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_distance = _scaled_product(grad, ctx.saved_tensors[0], ctx.factor, _into(ctx.workspace, grad))
        return None, None, by_distance, _sum_of_rows(by_distance), by_distance.sum(1)


def of_product(function: Slope, product: Tensor) -> Tensor:
    """Apply a function to inner products `[N, V]`."""
    score: Tensor = _OfProduct.apply(_workspace.get(), function, product)  # type: ignore[no-untyped-call]
    return score


class _OfProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, workspace: Workspace | None, function: Slope, product: Tensor) -> Tensor:
        score, slope, ctx.factor = function(product.clone() if workspace is None else product.detach())
        ctx.workspace = workspace
        ctx.save_for_backward(slope)
        return score

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, _scaled_product(grad, ctx.saved_tensors[0], ctx.factor, _into(ctx.workspace, grad))


def scaled(product: Tensor, factor: Tensor) -> Tensor:
    """Return inner products times a factor of each class: `[N, V]`, `[V]` -> `[N, V]`."""
    score: Tensor = _Scaled.apply(_workspace.get(), product, factor)  # type: ignore[no-untyped-call]
    return score


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, workspace: Workspace | None, product: Tensor, factor: Tensor) -> Tensor:
        ctx.workspace = workspace
        ctx.save_for_backward(product if ctx.needs_input_grad[2] else product.new_empty(0), factor)
        return torch.mul(product, factor, out=_like(product))

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, factor = ctx.saved_tensors
        wanted = ctx.needs_input_grad[2]
        by_factor = _sum_of_rows(torch.mul(product, grad, out=_into(ctx.workspace, product))) if wanted else None
        return None, torch.mul(grad, factor, out=_into(ctx.workspace, grad)), by_factor


def _into(workspace: Workspace | None, tensor: Tensor) -> Tensor | None:
    """Return the `out` argument: the tensor itself to overwrite it, None for new memory."""
    return None if workspace is None else tensor.detach()


def _like(matrix: Tensor, workspace: Workspace | None = None) -> Tensor:
    """Return memory for a matrix like another one, of a workspace or that of `overwriting`, where there is one."""
    workspace = workspace or _workspace.get()
    return torch.empty_like(matrix) if workspace is None else workspace.like(matrix)


def _scaled_product(grad: Tensor, slope: Tensor | None, factor: float, out: Tensor | None) -> Tensor:
    """Return `factor * grad * slope`, in one pass over `[N, V]`; the slope is 1 without one."""
    if slope is None:
        return torch.mul(grad, factor, out=out)
    if factor == 1.0:
        return torch.mul(grad, slope, out=out)
    return torch.addcmul(grad.new_zeros(()), grad, slope, value=factor, out=out)


def _sum_of_rows(matrix: Tensor) -> Tensor:
    """Return the sum of the few rows of a block, in half the time of `sum`: `[m, V]` -> `[V]`."""
    # `mv` and not `@`, which autocast would run in half precision.
    return torch.mv(matrix.t(), matrix.new_ones(matrix.shape[0]))


def squared_norm(vectors: Tensor) -> Tensor:
    """Return `||x||^2` of each row, with a gradient in one pass: `[M, e]` -> `[M]`."""
    norm: Tensor = _SquaredNorm.apply(vectors)  # type: ignore[no-untyped-call]
    return norm


class _SquaredNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(vectors)
        return (vectors * vectors).sum(-1)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (ctx.saved_tensors[0] * (2.0 * grad)[..., None],)


def norm_and_last(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return `||x||^2` of each row without its last number, and that number: `[..., e]` -> 2 of `[...]`."""
    found: tuple[Tensor, Tensor] = _NormAndLast.apply(vectors)  # type: ignore[no-untyped-call]
    return found


class _NormAndLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(vectors)
        others = vectors[..., :-1]
        return (others * others).sum(-1), vectors[..., -1].clone()

    @staticmethod
    @first_derivative
    def backward(ctx: Any, by_norm: Tensor, by_last: Tensor) -> tuple[Tensor | None, ...]:
        result = ctx.saved_tensors[0] * (2.0 * by_norm)[..., None]
        result[..., -1] = by_last
        return (result,)


def gaussian_overlap(products: Sequence[Tensor], sides: Sequence[Sequence[Tensor]], dimensions: int) -> Tensor:
    """Return the sum over pairs of spherical Gaussians of the log of the integral of their product.

    Each pair has `-2` times its means' inner product, `[N, V]`, and as its sides the word's squared norm and
    log-variance, `[V]` each, and the position's, `[N]` each.
    """
    flat = [statistic for side in sides for statistic in side]
    score: Tensor = _GaussianOverlap.apply(_workspace.get(), dimensions, len(products), *products, *flat)  # type: ignore[no-untyped-call]
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
    def forward(ctx: Any, workspace: Workspace | None, dimensions: int, count: int, *tensors: Tensor) -> Tensor:
        cls, half, total = _GaussianOverlap, 0.5 * dimensions, None
        factor = -0.5 * cls.FACTOR
        slopes, inverses = [], []
        for product, *side in zip(tensors[:count], *(tensors[count + i :: 4] for i in range(4)), strict=True):
            class_norm, class_variance, norm, variance = side
            inverse = torch.add(*cls.shares(class_variance, variance), out=_like(product)).reciprocal_()
            slope = torch.add(factor * class_norm, product, alpha=factor, out=_into(workspace, product))
            slope.add_((factor * norm)[:, None]).clamp_max_(0.0)
            slope = torch.addcmul(slope.new_full((), half), slope, inverse, out=slope)
            if total is None:
                logarithm = torch.log(inverse, out=_like(inverse))
                total = torch.add(slope, logarithm, alpha=half, out=logarithm)
            else:
                logarithm = torch.log(inverse, out=_like(inverse) if len(slopes) == 1 else logarithm)
                total.add_(logarithm, alpha=half).add_(slope)
            slopes.append(slope)
            inverses.append(inverse)
        ctx.count, ctx.workspace = count, workspace
        ctx.save_for_backward(*slopes, *inverses, *tensors[count:])
        assert total is not None
        return total

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_products: list[Tensor] = []
        by_sides: list[Tensor] = []
        saved, count, workspace = ctx.saved_tensors, ctx.count, ctx.workspace
        slopes, inverses, sides = saved[:count], saved[count : 2 * count], saved[2 * count :]
        share = _like(grad, workspace)
        for slope, inverse, class_variance in zip(slopes, inverses, sides[1::4], strict=True):
            # The last product may take the place of the gradient.
            place = grad if len(by_products) == count - 1 else slope
            class_share = class_variance.exp().mul_(_GaussianOverlap.FACTOR)
            # Negative slope in the logarithm of the sum of the variances.
            by_both = torch.mul(grad, slope, out=_into(workspace, slope))
            total = by_both.sum(1)
            # In this order, because `inverse * class_share` is at most 1 and the others can be huge.
            by_class = torch.mul(inverse, class_share, out=share).mul_(by_both)
            by_product = _scaled_product(grad, inverse, -0.5 * _GaussianOverlap.FACTOR, _into(workspace, place))
            by_sides += [_sum_of_rows(by_product), _sum_of_rows(by_class).neg_()]
            by_sides += [by_product.sum(1), by_class.sum(1).sub_(total)]
            by_products.append(by_product)
        return None, None, None, *by_products, *by_sides


def poincare(
    product: Tensor, classes: tuple[Tensor, ...], positions: tuple[Tensor, ...], *, exponential: bool = False
) -> Tensor:
    """Return the negative Poincare distance `-acosh(1 + x)`, `x = 2 (norm + class_norm - 2 product) / (class_gap gap)`.

    With `exponential` the result is its exponential, `1 / (1 + x + sqrt(x (x + 2)))`, and the incoming gradient still
    that of the distance.

    classes are `-2 scale / class_gap`, `class_norm / class_gap`, `1 / class_gap`, `[V]` each; the scale maps a
    word into the ball, which products `[N, V]` do not include; positions are `norm` and `2 / gap`, `[N]` each.
    """
    score: Tensor = _Poincare.apply(_workspace.get(), exponential, product, *classes, *positions)  # type: ignore[no-untyped-call]
    return score


class _Poincare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, workspace: Workspace | None, exponential: bool, product: Tensor, *sides: Tensor) -> Tensor:
        factor, class_norm, class_gap, norm, gap = sides
        excess = torch.addcmul(class_norm, norm[:, None], class_gap, out=_like(product)).addcmul_(product, factor)
        # acosh(1 + x) = log1p(x + sqrt(x (x + 2))); the floor keeps the root's slope finite at distance 0.
        excess.clamp_min_(torch.finfo(excess.dtype).tiny ** 0.5).mul_(gap[:, None])
        root = torch.addcmul(excess, excess, excess, value=0.5, out=_like(excess)).sqrt_()  # lacks the factor sqrt(2)
        ctx.workspace = workspace
        ctx.save_for_backward(product, root, *sides)
        grown = torch.add(excess, root, alpha=math.sqrt(2), out=excess)
        return grown.add_(1.0).reciprocal_() if exponential else grown.log1p_().neg_()

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, root, factor, class_norm, class_gap, norm, gap = ctx.saved_tensors
        scale = gap * -math.sqrt(0.5)
        by_distance = torch.div(grad, root, out=_into(ctx.workspace, root)).mul_(scale[:, None])
        by_factor = torch.mul(product, by_distance, out=_into(ctx.workspace, product))
        by_norm = torch.mv(by_distance, class_gap)
        by_gap = torch.mv(by_distance, class_norm) + norm * by_norm + torch.mv(by_factor, factor)
        return (
            None,
            None,
            torch.mul(by_distance, factor, out=_into(ctx.workspace, grad)),
            _sum_of_rows(by_factor),
            _sum_of_rows(by_distance),
            torch.mv(by_distance.t(), norm),
            by_norm,
            by_gap / gap,
        )
