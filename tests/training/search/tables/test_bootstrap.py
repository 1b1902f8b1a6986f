"""Tests of bootstrap intervals."""

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training.search.tables.bootstrap import paired_interval, read_statistics, write_statistics
from training.search.tables.records import Interval
from training.tasks.examples import Examples, mean, perplexity


def _right(count: int, of: int) -> Examples:
    """Return examples, the first `count` of which are right."""
    return Examples(np.stack([np.arange(of) < count, np.ones(of)], 1).astype(np.float64), mean)


def _interval(own: Examples, reference: NDArray[np.float64]) -> Interval:
    interval = paired_interval(own, reference)
    assert interval is not None
    return interval


def test_an_interval_of_independent_differences() -> None:
    """40 more of 400 right: each difference is 0 or 1, and the standard error of their mean is known."""
    own, other = _right(300, 400), _right(260, 400)
    deviation = math.sqrt(0.1 * 0.9 / 400)
    found = _interval(own, other.statistics)
    assert found.low == pytest.approx(0.1 - 1.96 * deviation, abs=0.004)
    assert found.high == pytest.approx(0.1 + 1.96 * deviation, abs=0.004)
    assert found.reference == 0.65
    assert _interval(own, other.statistics) == found


def test_pairing_cancels_what_both_models_share() -> None:
    generator = np.random.default_rng(1)
    hard = generator.normal(size=500)

    def examples(shift: float, noise: NDArray[np.float64]) -> Examples:
        return Examples(np.stack([hard + shift + 0.01 * noise, np.ones(500)], 1), mean)

    own, other = examples(0.1, generator.normal(size=500)), examples(0.0, generator.normal(size=500))
    found = _interval(own, other.statistics)
    assert 0.09 < found.low < 0.1 < found.high < 0.11
    same = _interval(own, own.statistics)
    assert (same.low, same.high) == (0, 0)


def test_there_is_no_interval_of_other_examples_or_of_infinite_metrics() -> None:
    assert paired_interval(_right(3, 4), _right(3, 5).statistics) is None
    impossible = Examples(np.array([[-math.inf, 1.0], [-1.0, 1.0]]), perplexity)
    assert paired_interval(impossible, impossible.statistics) is None


def test_statistics_are_kept_in_the_run(tmp_path: Path) -> None:
    assert read_statistics(tmp_path) is None
    own = _right(300, 400)
    write_statistics(own, tmp_path)
    found = read_statistics(tmp_path)
    assert found is not None
    np.testing.assert_array_equal(found, own.statistics)
