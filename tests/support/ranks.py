"""Ranks of numbers that another program has computed, too: numbers that are almost equal may be in either order."""

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["are_best", "is_rank"]

_ALMOST = 1e-5


def is_rank(rank: int, values: Any, index: int) -> bool:
    """Return whether a rank, from 1 on, is that of the value at an index of `[V]`."""
    numbers = np.asarray(values)
    above = [int((numbers > numbers[index] + margin).sum()) for margin in (_ALMOST, -_ALMOST)]
    return 1 + above[0] <= rank <= above[1]


def are_best(indices: Sequence[int], values: Any, count: int) -> bool:
    """Return whether the `count` largest values of `[V]` are at these indices, in descending order."""
    numbers = np.asarray(values)
    best = -np.sort(-numbers)[:count]
    return len(set(indices)) == len(indices) == count and bool(np.abs(numbers[list(indices)] - best).max() <= _ALMOST)
