"""Sparse-softmax: only the top-k classes get a probability (sparse paper, eq. 4-5).

Shapes: `N` examples, `V` classes; `...` are any leading dimensions of examples.

    p_i = exp(z_i) / sum of exp(z_j) over the k best j      for i among the k best, exactly 0 elsewhere
    loss = log of the sum of exp(z_j) over the k best j  -  z_target

The loss takes the target's score whether or not it is among the k best; it is never negative. Equal scores are ranked
by the lower class. `k >= V` is plain softmax.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from .elementwise import first_derivative, is_transformed
from .kernel import as_rows, at_least_float32, from_rows, is_positive_integer, readable, saveable

__all__ = [
    "Reduction",
    "as_targets",
    "best_classes",
    "check_integers",
    "check_target_shape",
    "sparse_softmax",
    "sparse_softmax_cross_entropy",
    "sparse_softmax_loss",
]

Reduction = Literal["none", "mean", "sum"]

_BLOCK = 64
"""Classes of a block, whose maximum decides whether the block is searched."""


def best_classes(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest scores of each row, descending, and their classes: `[..., V]` -> two of `[..., min(k, V)]`.

    Raises `ValueError` for a k that is not a positive integer.
    """
    if not is_positive_integer(k):
        raise ValueError(f"k must be a positive integer, not {k!r}")
    if scores.dim() != 2:
        values, classes = best_classes(as_rows(scores), k)
        return from_rows(values, scores), from_rows(classes, scores)
    classes_count = scores.shape[-1]
    if k >= classes_count:
        return _stable_top_k(scores, classes_count)
    if torch.compiler.is_exporting():
        # ONNX's TopK, unlike torch's, ranks equal scores by the lower class: its specification says so.
        best: tuple[Tensor, Tensor] = torch.topk(scores, k, dim=-1)
    elif not readable(scores):
        best = _best_without_looking(scores, k)
    else:
        best = _best_classes(scores, k)
    return best


@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _best_classes(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # A scripted function keeps the branch, and the sizes it depends on, where tracing would freeze them.
    values, classes = _top_k(scores, k + 1)
    # A score that is shared by places k and k + 1: which of its classes got place k is arbitrary.
    tied = values[:, k - 1] == values[:, k]
    values, classes = values[:, :k], classes[:, :k]
    if bool(tied.any()):
        values, classes = values.clone(), classes.clone()
        values[tied], classes[tied] = _stable_top_k(scores[tied], k)
    return values, classes


def _top_k(scores: Tensor, k: int, block: int = _BLOCK) -> tuple[Tensor, Tensor]:
    """Return `torch.topk` of the k blocks of classes with the largest maxima, which contain the k best."""
    count, width = scores.shape[0], scores.shape[1] // block * block
    blocks = width // block
    if blocks <= 2 * k or scores.device.type != "cpu":
        return torch.topk(scores, k, dim=-1)
    body = scores[:, :width].unflatten(1, (blocks, block))
    chosen = torch.topk(body.amax(-1), k, dim=-1, sorted=False).indices
    candidates = body[torch.arange(count)[:, None], chosen].flatten(1)
    values, places = torch.topk(torch.cat([candidates, scores[:, width:]], dim=1), k, dim=-1)
    # The classes after the last whole block follow the k chosen blocks, as if they began another.
    starts = torch.cat([chosen * block, chosen.new_full((count, 1), width)], dim=1)
    order = places // block
    return values, starts.gather(1, order) + places - order * block


def _best_without_looking(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return `best_classes` without a branch that depends on whether scores are equal."""
    classes = scores.shape[1]
    last = torch.topk(scores, k, dim=-1).values[:, -1:]
    above, equal = scores > last, scores == last
    room = k - above.sum(-1, keepdim=True, dtype=torch.int32)
    chosen = above | (equal & (equal.cumsum(-1, dtype=torch.int32) <= room))
    places = torch.arange(classes, device=scores.device, dtype=torch.int32).expand_as(scores)
    best = torch.topk(torch.where(chosen, places, classes), k, dim=-1, largest=False).values.long()
    # A row with NaN, which is neither above nor equal to anything, has fewer than k.
    best = best.sort(dim=-1).values.clamp_max(classes - 1)
    values, order = torch.sort(scores.gather(1, best), dim=-1, descending=True, stable=True)
    return values, best.gather(1, order)


def _stable_top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, classes = torch.sort(scores, dim=-1, descending=True, stable=True)
    return values[:, :k], classes[:, :k]


def sparse_softmax(scores: Tensor, k: int) -> Tensor:
    """Return the sparse-softmax of each row, min(k, V) entries of it above 0: `[..., V]` -> `[..., V]` (eq. 4)."""
    scores = saveable(scores)
    values, classes = best_classes(scores, k)
    return torch.zeros_like(scores).scatter(-1, classes, torch.softmax(values, dim=-1))


def sparse_softmax_loss(scores: Tensor, target: Tensor, k: int) -> Tensor:
    """Return the loss of each example: scores `[..., V]`, target `[...]` -> `[...]` (eq. 5).

    Raises `ValueError` for a k that is not a positive integer, targets of another shape, or one outside `[0, V)`.
    """
    check_target_shape(scores, target)
    target = as_targets(target, scores.shape[-1])
    if is_transformed():
        values, _ = best_classes(scores, k)
        return torch.logsumexp(at_least_float32(values), dim=-1) - scores.gather(-1, target[..., None])[..., 0]
    loss: Tensor = _SparseSoftmaxLoss.apply(as_rows(saveable(scores)), saveable(target).flatten(), k)  # type: ignore[no-untyped-call]
    return from_rows(loss, scores)


def sparse_softmax_cross_entropy(
    scores: Tensor,
    target: Tensor,
    k: int,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return `sparse_softmax_loss` with the conventions of `torch.nn.functional.cross_entropy`, but classes come last.

    Ignored examples count for nothing; if all are, the mean is 0. With reduction `none` their loss is 0. Label
    smoothing mixes the target's score with the mean score of all classes, which is finite. Raises the errors of
    `sparse_softmax_loss`, and `ValueError` for a `label_smoothing` outside [0, 1).
    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1): {label_smoothing!r}")
    check_target_shape(scores, target)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', not {reduction!r}")
    scores, target = saveable(scores), saveable(target)
    kept = target != ignore_index
    whole = not readable(target) or bool(kept.all())
    scores, target = (scores, target.masked_fill(~kept, 0)) if whole else (scores[kept], target[kept])
    losses = sparse_softmax_loss(scores, target, k)
    if label_smoothing:
        chosen = scores.gather(-1, target.long()[..., None])[..., 0]
        losses = losses + label_smoothing * (chosen - scores.mean(-1))
    losses = losses.masked_fill(~kept, 0.0) if whole else losses.new_zeros(kept.shape).masked_scatter(kept, losses)
    if reduction == "none":
        return losses
    return losses.sum() / kept.sum().clamp_min(1) if reduction == "mean" else losses.sum()


def check_target_shape(inputs: Tensor, target: Tensor) -> None:
    """Raise `ValueError` unless inputs `[..., d]` have a target each, `[...]`."""
    if target.shape != inputs.shape[:-1]:
        raise ValueError(
            f"target must be {list(inputs.shape[:-1])} for inputs {list(inputs.shape)}, not {list(target.shape)}"
        )


def check_integers(target: Tensor) -> None:
    """Raise `ValueError` for targets of another type than integers."""
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise ValueError(f"targets must be integers, the classes, not {target.dtype}")


def as_targets(target: Tensor, num_classes: int) -> Tensor:
    """Return targets `[...]` as int64.

    Raises `ValueError` for targets that are no integers, or that are seen to lie outside `[0, num_classes)`
    (`kernel.readable`).
    """
    check_integers(target)
    if target.numel() and readable(target) and not (int(target.min()) >= 0 and int(target.max()) < num_classes):
        raise ValueError(f"target must lie in [0, {num_classes}), not {int(target.min())} to {int(target.max())}")
    return target.long()


class _SparseSoftmaxLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, target: Tensor, k: int) -> Tensor:
        values, classes = best_classes(scores, k)
        wide = at_least_float32(values)
        normalizer = torch.logsumexp(wide, dim=-1)
        ctx.save_for_backward(torch.exp(wide - normalizer[:, None]), classes, target)
        ctx.shape, ctx.dtype = scores.shape, scores.dtype
        loss: Tensor = normalizer - scores.gather(1, target[:, None])[:, 0]
        return loss

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        probabilities, classes, target = ctx.saved_tensors
        result = grad.new_zeros(ctx.shape, dtype=ctx.dtype)
        result.scatter_(1, classes, (probabilities * grad[:, None]).to(ctx.dtype))
        result.scatter_add_(1, target[:, None], -grad[:, None].to(ctx.dtype))
        return result, None, None
