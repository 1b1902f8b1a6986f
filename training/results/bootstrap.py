"""Bootstrap over the examples of a test set (Efron 1979): how much a difference owes to the choice of examples."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.tasks.examples import Examples

__all__ = ["difference_interval", "paired_interval"]

_RESAMPLES = 2000
_QUANTILES = 0.025, 0.975


def paired_interval(own: Examples, other: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % percentile interval of one model's metric minus another's on the same examples.

    `other` are the statistics of the other model, in the same order. The resamples are always the same ones.
    Raises `ValueError` where there are not as many examples.
    """
    if own.statistics.shape != other.shape:
        raise ValueError(f"statistics of {other.shape} cannot be paired with those of {own.statistics.shape}")
    generator = np.random.default_rng(0)
    both = np.concatenate([own.statistics, other], 1)
    drawn = (generator.integers(len(both), size=len(both)) for _ in range(_RESAMPLES))
    sums = np.stack([both[indices].sum(0) for indices in drawn])
    width = other.shape[1]
    low, high = np.quantile(own.metric(sums[:, :width]) - own.metric(sums[:, width:]), _QUANTILES)
    return float(low), float(high)


def difference_interval(own: Examples, directory: Path, reference: Path) -> tuple[float, float] | None:
    """Keep the statistics in a run's directory, and return `paired_interval` against those of another run.

    None where the other run has kept none, or is the same.
    """
    name = "examples.npy"
    np.save(directory / name, own.statistics)
    if directory == reference or not (reference / name).is_file():
        return None
    return paired_interval(own, np.load(reference / name))
