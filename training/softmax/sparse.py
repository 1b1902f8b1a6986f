"""Sparse-softmax: only the k best classes take part (sparse paper, eq. 4-5).

Shapes: `N` examples, `V` classes.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["best_classes", "sparse_softmax", "sparse_softmax_cross_entropy", "sparse_softmax_loss"]

Reduction = Literal["none", "mean", "sum"]


def best_classes(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row and their classes, equal scores by the lower class: `[N, V]` -> 2 of `[N, k]`.

    `k >= V` means all classes. Raises `ValueError` for `k < 1`.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a positive integer, not {k!r}")
    values, classes = torch.topk(scores, min(k, scores.shape[-1]), dim=-1)
    last = values[:, -1:]
    tied = (scores == last).sum(-1) > (values == last).sum(-1)
    if tied.any():
        # topk finds the right values but takes any of the classes that tie for the last place.
        order = torch.argsort(scores[tied], dim=-1, descending=True, stable=True)[:, : values.shape[-1]]
        classes[tied] = order
    return values, classes
