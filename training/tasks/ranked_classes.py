"""The most probable classes of examples: what metrics of classifiers are computed from, without all probabilities.

Shapes: `N` examples, `C` classes, `k` classes that are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST_THRESHOLD", "RankedClasses"]

LEAST_THRESHOLD = 0.05
"""Least probability from which on a class can be predicted in addition to the most probable one."""
_KEPT = 20
"""Classes that are kept at least: no more have a probability of `LEAST_THRESHOLD` where probabilities sum to 1."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankedClasses:
    """The `k` most probable classes of each example, which include all of at least `LEAST_THRESHOLD`."""

    classes: NDArray[np.int64]
    """`[N, k]`, most probable first, of equal ones the lowest number first."""
    probabilities: Floats
    """`[N, k]`."""
    count: int
    """`C`."""

    @classmethod
    def of(cls, probabilities: Floats, least: float = LEAST_THRESHOLD) -> Self:
        """Return those of all probabilities `[N, C]`, all that have `least` among them."""
        count = probabilities.shape[1]
        likely = (probabilities >= least).sum(1).max(initial=0)
        kept = min(count, max(_KEPT, int(likely)))
        if not probabilities.size:
            return cls(np.empty((len(probabilities), 0), np.int64), np.empty((len(probabilities), 0)), count)
        limit = np.partition(probabilities, count - kept, axis=1)[:, count - kept, None]
        above, equal = probabilities > limit, probabilities == limit
        chosen = above | (equal & (equal.cumsum(1) <= kept - above.sum(1, keepdims=True)))
        classes = chosen.nonzero()[1].reshape(len(chosen), kept)
        values = np.take_along_axis(probabilities, classes, 1)
        order = np.argsort(-values, axis=1, kind="stable")
        return cls(np.take_along_axis(classes, order, 1), np.take_along_axis(values, order, 1), count)

    @classmethod
    def joined(cls, parts: Sequence["RankedClasses"]) -> Self:
        """Return the examples of several parts, one or more; where a part keeps fewer classes, it has class 0 with
        probability 0."""
        most = max(part.classes.shape[1] for part in parts)
        classes = np.concatenate([_widened(part.classes, most) for part in parts])
        values = np.concatenate([_widened(part.probabilities, most) for part in parts])
        return cls(classes, values, parts[0].count)

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def best(self) -> NDArray[np.int64]:
        """The most probable class of each example, `[N]`."""
        return self.classes[:, 0]

    @property
    def confidences(self) -> Floats:
        """The probability of the most probable class of each example, `[N]`."""
        return self.probabilities[:, 0]

    def best_other(self, left_out: int | None) -> Floats:
        """Return the largest probability of each example, `[N]`, one class left out."""
        if left_out is None:
            return self.confidences
        others: Floats = np.where(self.classes == left_out, 0.0, self.probabilities)
        return np.asarray(others.max(1))

    def part(self, rows: Sequence[int] | Sequence[bool] | NDArray[np.bool_]) -> "RankedClasses":
        """Return some of the examples."""
        return RankedClasses(self.classes[rows], self.probabilities[rows], self.count)

    def predicted(self, threshold: float) -> NDArray[np.bool_]:
        """Return which of the kept classes are predicted, `[N, k]`: the best one and those from a threshold on."""
        found = self.probabilities >= threshold
        found[:, 0] = True
        return found


def _widened(values: NDArray[Any], width: int) -> NDArray[Any]:
    missing = width - values.shape[1]
    return values if not missing else np.pad(values, [(0, 0), (0, missing)])
