"""Bootstrap over the examples of a test set (Efron 1979): how much a difference owes to the choice of examples."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.search.tables.records import Interval
from training.tasks.examples import Examples

__all__ = ["paired_interval", "read_statistics", "write_statistics"]

_RESAMPLES = 2000
_QUANTILES = 0.025, 0.975
_FILE = "examples.npy"


def paired_interval(own: Examples, reference: NDArray[np.float64]) -> Interval | None:
    """Return the 95 % percentile interval of a model's metric minus that of a reference on the same examples.

    `reference` are the statistics of the other model, in the same order. The resamples are always the same ones.
    None where there are not as many examples, or where a metric of a resample is not finite.
    """
    if own.statistics.shape != reference.shape:
        return None
    generator = np.random.default_rng(0)
    both = np.concatenate([own.statistics, reference], 1)
    drawn = (generator.integers(len(both), size=len(both)) for _ in range(_RESAMPLES))
    sums = np.stack([both[indices].sum(0) for indices in drawn])
    width = reference.shape[1]
    metrics = [own.metric(part) for part in (sums[:, :width], sums[:, width:])]
    if not np.isfinite(metrics).all():
        return None
    low, high = np.quantile(metrics[0] - metrics[1], _QUANTILES)
    return Interval(low=low, high=high, reference=float(own.metric(reference.sum(0, keepdims=True))[0]))


def write_statistics(examples: Examples, directory: Path) -> None:
    """Keep the statistics of a run's test examples in its directory."""
    np.save(directory / _FILE, examples.statistics)


def read_statistics(directory: Path) -> NDArray[np.float64] | None:
    """Return what `write_statistics` kept in a run's directory, None where it kept nothing."""
    file = directory / _FILE
    return np.load(file) if file.is_file() else None
