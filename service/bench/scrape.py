"""The server's metrics over a load test: the difference of two scrapes of `GET /metrics`."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Difference", "Distribution", "Scrape", "ScrapeError"]

_Series = tuple[str, frozenset[tuple[str, str]]]
_CUMULATIVE = ("_total", "_bucket", "_count", "_sum")
_CREATED = "_created"
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
        cumulative = np.cumsum(self.counts)
        bucket = int(np.searchsorted(cumulative, share * cumulative[-1]))
        upper, count = self.bounds[bucket], self.counts[bucket]
        if math.isinf(upper):
            return self.largest
        lower = min(self.bounds[bucket - 1] if bucket else 0.0, upper)
        return float(lower + (upper - lower) * (share * cumulative[-1] - (cumulative[bucket] - count)) / count)


class Scrape:
    """The metrics of a server at one time."""

    def __init__(self, series: Mapping[_Series, float], seconds: float) -> None:
        self.series = series
        self.seconds = seconds
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
    """The change of one model's metrics between two scrapes, by all clients."""

    def __init__(self, before: Scrape, after: Scrape, model: str) -> None:
        if _restarted(before.series, after.series, model):
            raise ScrapeError(
                "its counters decreased: the server restarted during the run, or several servers have this address"
            )
        self.seconds = after.seconds - before.seconds
        self._before, self._after, self._model = before.series, after.series, model

    def distribution(self, name: str) -> Distribution:
        """Return the observations of the histogram `softserve_<name>`; empty where there is none."""
        cumulative = {float(bound): value for bound, value in self._by_label(f"{name}_bucket", "le").items()}
        bounds = sorted(cumulative)
        counts = np.diff([cumulative[bound] for bound in bounds], prepend=0.0)
        total = sum(self._by_label(f"{name}_sum", "model").values())
        return Distribution(total, tuple(bounds), tuple(counts.tolist()))

    def counter(self, name: str) -> float:
        """Return the increase of the counter `softserve_<name>_total`."""
        return sum(self.by_label(name, "model").values())

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the increase of a counter for each value of a label, where it is not 0."""
        return {key: value for key, value in self._by_label(f"{name}_total", label).items() if value}

    def gauge(self, name: str) -> float | None:
        """Return a value without labels, of any name, in the later scrape."""
        return self._after.get((name, frozenset()))

    def _by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the increase of samples for each value of a label, summed over versions of the model."""
        sums: dict[str, float] = defaultdict(float)
        for series, value in self._after.items():
            labels = dict(series[1])
            if series[0] == _PREFIX + name and labels.get("model") == self._model and label in labels:
                sums[labels[label]] += value - self._before.get(series, 0.0)
        return sums


def _restarted(before: Mapping[_Series, float], after: Mapping[_Series, float], model: str) -> bool:
    """Return whether a cumulative series decreased, is missing, or was created again.

    Series of another model may be missing because that model was unloaded.
    """
    for (name, labels), value in before.items():
        unloaded = (name, labels) not in after and dict(labels).get("model", model) not in ("", model)
        if name.startswith(_PREFIX) and not unloaded:
            if name.endswith(_CREATED) and after.get((name, labels)) != value:
                return True
            if name.endswith(_CUMULATIVE) and after.get((name, labels), -1.0) < value:
                return True
    return False
