"""Metrics of a model on a split, and sufficient statistics of each example: a metric is a function of their sums.

Shapes: `N` examples, `S` statistics of each, `R` sums over examples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Examples", "Measurement", "bits_per_byte", "f1", "mean", "perplexity"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Examples:
    """The examples of a split for one model, in an order that models of equal data settings share."""

    statistics: Floats
    """The sufficient statistics of each example, `[N, S]`."""
    metric: Callable[[Floats], Floats]
    """The metric as a function of the statistics' sums over examples: `[R, S]` -> `[R]`."""

    @property
    def value(self) -> float:
        """Return the metric on all examples."""
        return float(self.metric(self.statistics.sum(0, keepdims=True))[0])


@dataclass(frozen=True, slots=True)
class Measurement:
    """The metrics of a model on a split."""

    metrics: Mapping[str, float]
    """Values by name; the first metric is that which models are selected by."""
    examples: Examples | None = None
    """What the first metric is made of; None where it is no function of sums over examples."""


def mean(sums: Floats) -> Floats:
    """Return `a / n` of the sums a, n."""
    result: Floats = sums[:, 0] / sums[:, 1]
    return result


def perplexity(sums: Floats) -> Floats:
    """Return `exp(-l / n)` of the summed log-probability and the number of tokens."""
    result: Floats = np.exp(-sums[:, 0] / sums[:, 1])
    return result


def bits_per_byte(sums: Floats) -> Floats:
    """Return `-l / (n ln 2)` of the summed log-probability and the number of bytes."""
    result: Floats = -sums[:, 0] / (sums[:, 1] * np.log(2))
    return result


def f1(sums: Floats) -> Floats:
    """Return `2 tp / (2 tp + fp + fn)` of true positives, false positives, false negatives."""
    result: Floats = 2 * sums[:, 0] / (2 * sums[:, 0] + sums[:, 1] + sums[:, 2])
    return result
