"""The measured cost of a batch: fitted when a model is loaded, and corrected while it serves.

A batch of `items` entries that are padded to `longest` tokens takes `fixed + item * items + token * items * longest`
seconds. A processor has a small fixed cost, so that batches are split by length; a GPU has a large one, so that they
are filled.
"""

import itertools
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNMEASURED", "CostModel", "Sample", "Terms", "fit"]

_RECENT = 256
"""Served batches that the terms are fitted to."""
_REFIT = 64
"""Served batches after which the terms are fitted again."""
_WARM_UP_WEIGHT = 16.0
"""Weight of all warm-up batches together, in served batches: traffic of one shape cannot tell the terms apart."""
_TOLERATED = 0.25
"""Relative deviation beyond which a batch counts less (Huber's weights): a pause of the process is not a trend."""
_ITERATIONS = 4
_RIDGE = 1e-9
_LARGEST_BATCH_COST = 1e6
"""Fixed cost in tokens where tokens cost nothing that can be measured."""


class Sample(NamedTuple):
    """One measured batch."""

    items: int
    longest: int
    """Tokens of the longest entry, to which all are padded."""
    seconds: float


class Terms(NamedTuple):
    """The cost of a batch, in seconds; none is negative."""

    fixed: float
    item: float
    """The cost of each entry."""
    token: float
    """The cost of each token, padding included."""

    def seconds(self, items: int, longest: int) -> float:
        """Return the expected time of a batch."""
        return self.fixed + items * (self.item + self.token * longest)

    @property
    def batch_cost(self) -> float:
        """The fixed cost in tokens: padding beyond which a second batch costs less."""
        return self.fixed / max(self.token, self.fixed / _LARGEST_BATCH_COST) if self.fixed else 0.0


UNMEASURED = Terms(0.0, 0.0, 1.0)
"""The terms of an operation that was not measured: costs are numbers of tokens."""


def fit(samples: Sequence[Sample], weights: Sequence[float] | None = None) -> Terms:
    """Return the terms that fit best, by relative deviations; outliers count less the further away they are.

    Iteratively reweighted least squares with Huber's weights, non-negative. Raises `ValueError` without samples.
    """
    if not samples:
        raise ValueError("nothing was measured")
    counts, longest, seconds = np.array(samples, np.float64).T
    features = np.stack([np.ones_like(counts), counts, counts * longest], axis=1)
    given = np.ones_like(seconds) if weights is None else np.array(weights)
    expected, kept = seconds, given
    for _ in range(_ITERATIONS):
        terms = _non_negative(features, seconds, kept / np.maximum(expected, 1e-9) ** 2)
        expected = features @ terms
        deviations = np.abs(seconds / np.maximum(expected, 1e-9) - 1)
        kept = given * np.minimum(1.0, _TOLERATED / np.maximum(deviations, 1e-9))
    return Terms(*terms.tolist())


_SUBSETS = [list(chosen) for size in (3, 2, 1) for chosen in itertools.combinations(range(3), size)]


def _non_negative(features: NDArray[Any], targets: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """Return the non-negative solution of weighted least squares, the best of those of all subsets of the terms."""
    products, moments = features.T * weights @ features, features.T @ (weights * targets)
    solvable = products + np.diag(_RIDGE * products.diagonal())  # where lengths are equal, terms cannot be told apart
    best, least = np.zeros(3), np.inf
    for chosen in _SUBSETS:
        solution = np.zeros(3)
        solution[chosen] = np.linalg.solve(solvable[np.ix_(chosen, chosen)], moments[chosen])
        if (solution < 0).any():
            continue
        if len(chosen) == 3:  # the best of all, since the deviation is convex
            return solution
        error = solution @ products @ solution - 2 * solution @ moments
        if error < least:
            best, least = solution, error
    return best


class CostModel:
    """The terms of one operation of a model on one device. Use it from one thread."""

    def __init__(
        self,
        measured: Sequence[Sample] = (),
        *,
        batch_cost: float | None = None,
        report: Callable[[Mapping[str, float]], object] = lambda terms: None,
    ) -> None:
        """Fit the terms to the batches of the warm-up; without any they are `UNMEASURED` until batches are served.

        `batch_cost` is used instead of the one that follows from the terms; `report` is called with all new terms.
        """
        self._measured = measured
        self._batch_cost, self._report = batch_cost, report
        self._first = self.terms = fit(measured) if measured else UNMEASURED
        self.unloaded = self._first if measured else None
        """The terms of the warm-up, while nothing else is computed; None where there was none."""
        self._recent: deque[Sample] = deque(maxlen=_RECENT)
        self._unfitted = 0
        if measured:
            report(self.terms._asdict())

    @property
    def batch_cost(self) -> float:
        """The fixed cost of a batch, in tokens."""
        return self.terms.batch_cost if self._batch_cost is None else self._batch_cost

    def record(self, sample: Sample) -> None:
        """Note a served batch; the terms follow."""
        self._recent.append(sample)
        self._unfitted += 1
        if self._unfitted < _REFIT:
            return
        self._unfitted = 0
        # The shapes of the warm-up at today's speed.
        speed = statistics.median(
            each.seconds / self._first.seconds(each.items, each.longest) for each in self._recent
        )  # not numpy's, whose first call imports another module
        anchors = [each._replace(seconds=each.seconds * speed) for each in self._measured]
        anchor_weights = [_WARM_UP_WEIGHT / len(anchors)] * len(anchors) if anchors else []
        self.terms = fit([*anchors, *self._recent], [*anchor_weights, *[1.0] * len(self._recent)])
        self._report(self.terms._asdict())
