"""Statistics of an experiment, pure: how the answers of two models for the same inputs compare, with confidence."""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Self

from models.operations.comparison import Comparison

__all__ = ["CONFIDENCE", "Agreement", "Mean", "Proportion", "correlation", "quantiles", "ranks", "wilson_interval"]

CONFIDENCE = 0.95
"""Confidence of every interval."""
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_RECENT = 1000
"""Inputs whose scores and times are kept, for correlations and quantiles."""
_FEW = 4
"""Inputs of which there must be more for the interval of a correlation."""

Interval = tuple[float, float]


def wilson_interval(count: int, total: int) -> Interval:
    """Return the score interval of a proportion (Wilson 1927), which holds for few inputs and near 0 and 1."""
    if not total:
        return 0.0, 1.0
    share, square = count / total, _Z * _Z
    centre = share + square / (2 * total)
    half = _Z * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    return max(0.0, (centre - half) / (1 + square / total)), min(1.0, (centre + half) / (1 + square / total))


@dataclass(slots=True)
class Proportion:
    """How often something holds."""

    count: int = 0
    total: int = 0

    def add(self, holds: bool) -> None:
        """Add an input."""
        self.count += holds
        self.total += 1

    def include(self, other: "Proportion") -> None:
        """Add the inputs of another one."""
        self.count += other.count
        self.total += other.total

    def summary(self) -> dict[str, object]:
        """Return the proportion with its interval."""
        low, high = wilson_interval(self.count, self.total)
        value = self.count / self.total if self.total else None
        return {"value": value, "low": low, "high": high, "count": self.count, "total": self.total}


@dataclass(slots=True)
class Mean:
    """A mean, and the interval that it is in (Welford 1962; normal approximation)."""

    total: int = 0
    value: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        """Add an input."""
        self.total += 1
        before = value - self.value
        self.value += before / self.total
        self._squares += before * (value - self.value)

    def include(self, other: "Mean") -> None:
        """Add the inputs of another one (Chan, Golub and LeVeque 1979)."""
        if not other.total:
            return
        total, between = self.total + other.total, other.value - self.value
        self._squares += other._squares + between * between * self.total * other.total / total
        self.value += between * other.total / total
        self.total = total

    def summary(self) -> dict[str, object]:
        """Return the mean with its interval, which needs two inputs."""
        if self.total < 2:
            return {"value": self.value if self.total else None, "low": None, "high": None, "total": self.total}
        half = _Z * math.sqrt(self._squares / (self.total - 1) / self.total)
        return {"value": self.value, "low": self.value - half, "high": self.value + half, "total": self.total}


def ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of values from 1 up, equal ones the mean of their places."""
    ordered = sorted(values)
    first = {value: bisect_left(ordered, value) for value in set(values)}
    count = dict.fromkeys(first, 0)
    for value in values:
        count[value] += 1
    return [first[value] + (count[value] + 1) / 2 for value in values]


def correlation(first: Sequence[float], second: Sequence[float]) -> dict[str, object]:
    """Return Pearson's correlation with its interval (Fisher's transformation); none where a side is constant."""
    total = len(first)
    nothing: dict[str, object] = {"value": None, "low": None, "high": None, "total": total}
    if total < 2:
        return nothing
    means = sum(first) / total, sum(second) / total
    products = sum((a - means[0]) * (b - means[1]) for a, b in zip(first, second, strict=True))
    squares = [sum((a - mean) ** 2 for a in some) for some, mean in zip((first, second), means, strict=True)]
    if not all(squares):
        return nothing
    value = max(-1.0, min(1.0, products / math.sqrt(squares[0]) / math.sqrt(squares[1])))
    if total < _FEW or abs(value) == 1.0:
        return nothing | {"value": value}
    centre, half = math.atanh(value), _Z / math.sqrt(total - 3)
    return {"value": value, "low": math.tanh(centre - half), "high": math.tanh(centre + half), "total": total}


def quantiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return median and 99th percentile (nearest rank)."""
    ordered = sorted(seconds)

    def at(share: float) -> float | None:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None

    return {"p50": at(0.5), "p99": at(0.99)}


@dataclass(slots=True)
class Agreement:
    """The comparisons so far: counts without bound, scores and times of the last inputs."""

    agreement: Proportion = field(default_factory=Proportion)
    measures: dict[str, Mean] = field(default_factory=dict)
    scores: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    seconds: tuple[deque[float], deque[float]] = field(
        default_factory=lambda: (deque(maxlen=_RECENT), deque(maxlen=_RECENT))
    )
    """Inference times of requests: those of the primary, those of the candidate."""
    compared: int = 0
    """Inputs."""

    def add(self, comparison: Comparison) -> None:
        """Add an input."""
        self.compared += 1
        if comparison.agrees is not None:
            self.agreement.add(comparison.agrees)
        if comparison.scores is not None and all(map(math.isfinite, comparison.scores)):
            self.scores.append(comparison.scores)
        for name, value in comparison.measures.items():
            if math.isfinite(value):
                self.measures.setdefault(name, Mean()).add(value)

    def timed(self, side: int, seconds: float) -> None:
        """Add the inference time of a request, of the primary (0) or the candidate (1)."""
        self.seconds[side].append(seconds)

    @classmethod
    def together(cls, parts: Iterable["Agreement"]) -> Self:
        """Return the statistics of several processes: of each, the last scores and times."""
        found, scores, seconds = cls(), deque[tuple[float, float]](), (deque[float](), deque[float]())
        for part in parts:
            found.compared += part.compared
            found.agreement.include(part.agreement)
            for name, mean in part.measures.items():
                found.measures.setdefault(name, Mean()).include(mean)
            scores.extend(part.scores)
            for side, some in zip(seconds, part.seconds, strict=True):
                side.extend(some)
        found.scores, found.seconds = scores, seconds
        return found

    def summary(self) -> Mapping[str, object]:
        """Return everything that is known, as JSON."""
        first, second = zip(*self.scores, strict=True) if self.scores else ((), ())
        return {
            "compared": self.compared,
            "agreement": self.agreement.summary() if self.agreement.total else None,
            "measures": {name: mean.summary() for name, mean in sorted(self.measures.items())},
            "pearson": correlation(first, second),
            "spearman": correlation(ranks(first), ranks(second)),
            "inference_seconds": {
                side: quantiles(some) for side, some in zip(("primary", "candidate"), self.seconds, strict=True)
            },
        }
