"""alpha-entmax: distributions whose number of classes above 0 follows from the scores (Peters et al. 2019).

Shapes: `N` positions, `V` classes; `...` are any leading dimensions of positions.

    p(z) = argmax_p  p . z + H(p)                 H(p) = (1 - sum_v p_v^alpha) / (alpha (alpha - 1))
         = [(alpha - 1) z - tau]_+ ^ (1 / (alpha - 1))    with the threshold tau for which p sums to 1
    F(z) = max_p     p . z + H(p)                 its gradient in z is p(z)
    loss = F(z) - z_target                        (Blondel et al. 2020, for a distribution of one class)

With alpha -> 1, H is the entropy, p is softmax, and F is the logarithm of its normalizer: F takes that one's place in
every formula of a loss. alpha = 2 is sparsemax (Martins and Astudillo 2016).

The threshold is the root of a convex decreasing function, which Newton's method approaches from below without passing
it, from the threshold of any part of the classes. The largest score of each block of classes is such a part, and only
blocks whose largest score is above its threshold can hold a class above 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .kernel import as_rows, at_least_float32, from_rows, readable, saveable
from .sparse import Reduction, as_targets, check_target_shape

__all__ = [
    "ALPHAS",
    "Support",
    "check_alpha",
    "conjugate",
    "dense_entmax",
    "entmax",
    "entmax_loss",
    "log_entmax",
    "support",
]

ALPHAS = (1.0, 1.5, 2.0)
"""The values of alpha whose thresholds are roots of a line or a parabola; 1 is softmax."""

_BLOCK = 64
"""Classes of a block."""
_FEWEST_BLOCKS = 32
"""Fewer blocks than this are not worth choosing from."""
_STEPS = 24
"""The most steps of Newton's method."""
_BLIND_STEPS = {1.5: 9, 2.0: 14}
"""Steps for each alpha where no value may be read: one more than the most for 131,072 scores of several shapes."""


def check_alpha(alpha: float) -> None:
    """Raise `ValueError` for an alpha that is not one of `ALPHAS`."""
    if alpha not in ALPHAS:
        raise ValueError(f"alpha must be 1 (softmax), 1.5 (entmax) or 2 (sparsemax), not {alpha!r}")


def entmax(scores: Tensor, alpha: float = 1.5) -> Tensor:
    """Return alpha-entmax of each row, at least float32: `[..., V]` -> `[..., V]`.

    Derivatives of all orders are right where no class enters or leaves the support. Raises `ValueError` for an alpha
    that is not 1, 1.5 or 2.
    """
    check_alpha(alpha)
    rows = at_least_float32(as_rows(saveable(scores)))
    if alpha == 1.0:
        return from_rows(torch.softmax(rows, dim=-1), scores)
    excess = _excess(rows, alpha)[0]
    return from_rows(excess.square() if alpha == 1.5 else excess, scores)


def log_entmax(scores: Tensor, alpha: float) -> Tensor:
    """Return the logarithm of `entmax`, minus infinity outside the support: `[N, V]` -> `[N, V]`."""
    excess = _excess(scores, alpha)[0]
    inside = excess > 0
    logarithm = torch.where(inside, excess, 1.0).log() * (1 / (alpha - 1))
    return torch.where(inside, logarithm, -torch.inf)


def conjugate(scores: Tensor, alpha: float) -> Tensor:
    """Return F, whose gradient is `entmax`, differentiable as it is: `[..., V]` -> `[...]`."""
    rows = as_rows(scores)
    excess, threshold, largest = _excess(rows, alpha)
    powers = excess.square() * (excess if alpha == 1.5 else 1.0)
    return from_rows(_value(powers, threshold, largest, alpha)[:, None], scores)[..., 0]


def entmax_loss(
    scores: Tensor,
    target: Tensor,
    alpha: float = 1.5,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the loss `F(z) - z_target` with the conventions of `torch.nn.functional.cross_entropy`.

    scores `[..., V]`, target `[...]` -> scalar, or `[...]` with reduction `none`. It is 0 where the target alone has a
    probability above 0, never negative, and with alpha = 1 the cross entropy. Ignored examples count for nothing; if
    all are, the mean is 0. Raises `ValueError` for another alpha or reduction, targets of another shape, or one outside
    `[0, V)`.
    """
    check_alpha(alpha)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', not {reduction!r}")
    check_target_shape(scores, target)
    kept = target != ignore_index
    targets = as_targets(target.masked_fill(~kept, 0), scores.shape[-1])
    wide = at_least_float32(saveable(scores))
    normalizer = torch.logsumexp(wide, dim=-1) if alpha == 1.0 else conjugate(wide, alpha)
    losses = (normalizer - wide.gather(-1, targets[..., None])[..., 0]).masked_fill(~kept, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() / kept.sum().clamp_min(1) if reduction == "mean" else losses.sum()


@dataclass(frozen=True, slots=True)
class Support:
    """The classes above 0 of each position, padded by classes with probability 0."""

    value: Tensor
    """F, `[n]`."""
    probabilities: Tensor
    """`[n, C]`."""
    classes: Tensor
    """`[n, C]`."""


@torch.no_grad()
def support(scores: Tensor, alpha: float) -> Support | None:
    """Return the classes above 0, None where they are not found in a quarter of the scores.

    scores `[n, V]` are kept. Values are read (`kernel.readable`), and derivatives are not recorded.
    """
    count, classes = scores.shape
    blocks = classes // _BLOCK
    if blocks < _FEWEST_BLOCKS or not count or not readable(scores):
        return None
    width = blocks * _BLOCK
    body, tail = scores[:, :width].unflatten(1, (blocks, _BLOCK)), scores[:, width:]
    largest, heights, threshold = _start(scores, alpha)
    chosen = int((heights[:, :blocks] > threshold).sum(-1).max())
    if 4 * chosen > blocks:
        return None
    places = torch.topk(heights[:, :blocks], max(chosen, 1), dim=-1, sorted=False).indices
    found = torch.cat([body[torch.arange(count)[:, None], places].flatten(1), tail], dim=1)
    threshold, excess = _newton(found.sub_(largest).mul_(alpha - 1), threshold, alpha)
    sizes = int((excess > 0).sum(-1).max())
    values, order = torch.topk(excess, max(sizes, 1), dim=-1, sorted=False)
    # The classes after the last whole block follow the chosen blocks, as if they began another.
    starts = torch.cat([places * _BLOCK, places.new_full((count, 1), width)], dim=1)
    block = order // _BLOCK
    own = starts.gather(1, block) + order - block * _BLOCK
    powers = values.square() if alpha == 1.5 else values
    return Support(_value(values * powers, threshold, largest, alpha), _normalized(powers), own)


@torch.no_grad()
def dense_entmax(scores: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Return F `[n]` and alpha-entmax `[n, V]`, which overwrites the scores; derivatives are not recorded."""
    largest, _, threshold = _start(scores, alpha)
    threshold, excess = _newton(scores.sub_(largest).mul_(alpha - 1), threshold, alpha)
    powers = torch.mul(excess, excess, out=scores) if alpha == 1.5 else scores.copy_(excess)
    value = _value(excess.mul_(powers), threshold, largest, alpha)
    return value, _normalized(powers)


def _start(scores: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest score `[n, 1]`, heights below it of each block's largest and of the rest, and their threshold.

    There are no heights where there are few blocks, and the threshold is one from below then.
    """
    blocks = scores.shape[1] // _BLOCK
    if blocks < _FEWEST_BLOCKS:
        largest = _finite(scores.amax(-1, keepdim=True))
        return largest, scores[:, :0], torch.full_like(largest, -1.0)
    width = blocks * _BLOCK
    maxima = torch.cat([scores[:, :width].unflatten(1, (blocks, _BLOCK)).amax(-1), scores[:, width:]], dim=1)
    largest = _finite(maxima.amax(-1, keepdim=True))
    heights = maxima.sub_(largest).mul_(alpha - 1)
    return largest, heights, _newton(heights, None, alpha)[0]


def _excess(scores: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return `[(alpha - 1) (z - max) - tau]_+` `[N, V]`, tau `[N, 1]`, and the largest score `[N, 1]`.

    Which classes are above 0 is found first. The threshold is then a formula of these alone, the root of a line
    or parabola, and is differentiated like any formula.
    """
    largest = _finite(scores.detach().amax(-1, keepdim=True))
    heights = (scores - largest) * (alpha - 1)
    with torch.no_grad():
        inside = heights > _newton(heights.detach(), None, alpha)[0]
    count = inside.sum(-1, keepdim=True).clamp_min(1).to(heights.dtype)
    mean = torch.where(inside, heights, 0.0).sum(-1, keepdim=True) / count
    if alpha == 2.0:
        threshold = mean - 1 / count
    else:
        deviation = torch.where(inside, heights - mean, 0.0).square().sum(-1, keepdim=True)
        smallest = torch.finfo(heights.dtype).tiny
        threshold = mean - ((1 - deviation) / count).clamp_min(smallest).sqrt()
    return torch.where(inside, heights - threshold, 0.0).clamp_min(0.0), threshold, largest


def _value(powers: Tensor, threshold: Tensor, largest: Tensor, alpha: float) -> Tensor:
    """Return F from what `_excess` returns, of which `powers` has those to `alpha / (alpha - 1)`: `[N, C]` -> `[N]`."""
    if alpha == 2.0:
        return (largest + threshold + 0.5)[..., 0] + 0.5 * powers.sum(-1)
    return (largest + 2 * threshold + 4 / 3)[..., 0] + 2 / 3 * powers.sum(-1)


def _normalized(powers: Tensor) -> Tensor:
    """Let powers sum to 1, whatever rounding did to the threshold: `[n, C]` -> `[n, C]`, which are overwritten."""
    return powers.div_(powers.sum(-1, keepdim=True).clamp_min_(torch.finfo(powers.dtype).tiny))


def _newton(heights: Tensor, threshold: Tensor | None, alpha: float) -> tuple[Tensor, Tensor]:
    """Return the threshold `[n, 1]` of heights of at most 0 `[n, C]`, and heights above it, 0 for those below.

    `threshold` is one from below, -1 by default: the largest class alone has a probability of at most 1. With
    q = 1 / (alpha - 1), the function is the q-norm of the heights above the threshold, less 1.
    """
    smallest = torch.finfo(heights.dtype).tiny
    tolerance = (torch.finfo(heights.dtype).eps / heights.shape[-1]) ** 0.5
    threshold = heights.new_full((*heights.shape[:-1], 1), -1.0) if threshold is None else threshold
    looks = readable(heights) and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    excess = torch.empty_like(heights) if looks else None  # allocating takes longer than computing
    for _ in range(_STEPS if looks else _BLIND_STEPS[alpha]):
        excess = torch.sub(heights, threshold, out=excess if looks else None).clamp_min_(0.0)
        total = excess.sum(-1, keepdim=True).clamp_min_(smallest)
        if alpha == 2.0:
            step = (total - 1) / excess.sign_().sum(-1, keepdim=True).clamp_min_(1.0)
        else:
            norm = torch.linalg.vector_norm(excess, dim=-1, keepdim=True)
            step = norm * (norm - 1) / total
        threshold = threshold + step.clamp_min_(0.0)  # rounding
        if looks and not bool((step > tolerance).any()):  # each step squares the error
            break
    return threshold, torch.sub(heights, threshold, out=excess if looks else None).clamp_min_(0.0)


def _finite(values: Tensor) -> Tensor:
    return values.clamp_min(torch.finfo(values.dtype).min)
