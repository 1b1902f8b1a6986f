"""The server's metrics over a load test: the difference of two scrapes of `GET /metrics`."""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Difference", "Distribution", "Scrape", "ScrapeError"]

_Series = tuple[str, frozenset[tuple[str, str]]]
_CUMULATIVE = ("_total", "_bucket", "_count", "_sum")
_PREFIX = "softserve_"


class ScrapeError(ValueError):
    """The reason why there are no metrics of the server."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The observations of a histogram: their sum and the number in each bucket."""

    total: float
    bounds: tuple[float, ...]
    """Upper bounds of the buckets, ascending; the last is infinite."""
    counts: tuple[float, ...]
    """Values in each bucket."""

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Return the mean of at least one value."""
        return self.total / self.count

    @property
    def largest(self) -> float:
        """Return the largest finite bound, which stands for quantiles above it."""
        return max((bound for bound in self.bounds if math.isfinite(bound)), default=math.nan)

    def quantile(self, share: float) -> float:
        """Return a quantile of at least one value, interpolated in its bucket (Prometheus: `histogram_quantile`)."""
        rank, below, lower = share * self.count, 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count and below + count >= rank:
                lower = min(lower, bound)
                return self.largest if math.isinf(bound) else lower + (bound - lower) * (rank - below) / count
            below, lower = below + count, bound
        return self.largest


@dataclass(frozen=True, slots=True)
class Scrape:
    """The metrics of a server at one time."""

    series: Mapping[_Series, float]
    seconds: float
    """Time of the scrape on the client's clock."""

    @classmethod
    def parse(cls, content: bytes, seconds: float) -> Self:
        """Parse the text format of Prometheus; raises `ScrapeError` for other content or metrics of another service."""
        try:
            families = list(text_string_to_metric_families(content.decode()))
        except (ValueError, KeyError, IndexError):  # what the parser raises, and UnicodeDecodeError
            raise ScrapeError("/metrics is not in the text format of Prometheus") from None
        samples = [sample for family in families for sample in family.samples]
        if not any(sample.name.startswith(_PREFIX) for sample in samples):
            raise ScrapeError("/metrics has no metrics of Softserve")
        return cls({(each.name, frozenset(each.labels.items())): float(each.value) for each in samples}, seconds)


class Difference:
    """The change of one model's metrics between two scrapes, by all clients; versions of the model are summed."""

    def __init__(self, before: Scrape, after: Scrape, model: str) -> None:
        if _restarted(before.series, after.series, model):
            raise ScrapeError(
                "its counters decreased: the server restarted during the run, or several servers have this address"
            )
        self.seconds = after.seconds - before.seconds
        self._after = after.series
        self._changes = [
            (name, dict(labels), value - before.series.get((name, labels), 0.0))
            for (name, labels), value in after.series.items()
            if ("model", model) in labels
        ]

    def distribution(self, name: str) -> Distribution:
        """Return the observations of the histogram `softserve_<name>`; empty where there is none."""
        counts = sorted((float(bound), value) for bound, value in self._summed(f"{name}_bucket", "le").items() if bound)
        pairs = itertools.pairwise([0.0, *(value for _, value in counts)])
        bounds = tuple(bound for bound, _ in counts)
        return Distribution(self._total(f"{name}_sum"), bounds, tuple(upper - lower for lower, upper in pairs))

    def counter(self, name: str) -> float:
        """Return the increase of the counter `softserve_<name>_total`."""
        return self._total(f"{name}_total")

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the increase of a counter for each value of a label, where it is not 0."""
        return {key: value for key, value in self._summed(f"{name}_total", label).items() if value}

    def gauge(self, name: str) -> float | None:
        """Return a value without labels, of any name, in the later scrape."""
        return self._after.get((name, frozenset()))

    def _total(self, name: str) -> float:
        return sum(self._summed(name, "model").values())

    def _summed(self, name: str, label: str) -> dict[str, float]:
        """Return the increase of samples for each value of a label."""
        sums: dict[str, float] = defaultdict(float)
        for found, labels, change in self._changes:
            if found == _PREFIX + name:
                sums[labels.get(label, "")] += change
        return sums


def _restarted(before: Mapping[_Series, float], after: Mapping[_Series, float], model: str) -> bool:
    """Return whether a cumulative series decreased, is missing, or was created again.

    Series of another model may be missing because that model was unloaded.
    """
    for (name, labels), value in before.items():
        unloaded = (name, labels) not in after and dict(labels).get("model", model) not in ("", model)
        if name.startswith(_PREFIX) and not unloaded:
            found = after.get((name, labels), -1.0)
            if found < value if name.endswith(_CUMULATIVE) else found != value and name.endswith("_created"):
                return True
    return False
