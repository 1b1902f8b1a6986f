"""Tests of bootstrap intervals."""

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training.results.bootstrap import difference_interval, paired_interval
from training.tasks.examples import Examples, mean


def _right(count: int, of: int) -> Examples:
    """As many examples, the first `count` of them right."""
    return Examples(np.stack([np.arange(of) < count, np.ones(of)], 1).astype(np.float64), mean)


def test_an_interval_of_independent_differences() -> None:
    """40 more of 400 right, each -1, 0 or 1: the standard error of the mean of 400 differences is known."""
    own, other = _right(300, 400), _right(260, 400)
    deviation = math.sqrt(0.1 * 0.9 / 400)
    low, high = paired_interval(own, other.statistics)
    assert low == pytest.approx(0.1 - 1.96 * deviation, abs=0.004)
    assert high == pytest.approx(0.1 + 1.96 * deviation, abs=0.004)
    assert paired_interval(own, other.statistics) == (low, high)


def test_pairing_cancels_what_both_models_share() -> None:
    generator = np.random.default_rng(1)
    hard = generator.normal(size=500)

    def examples(shift: float, noise: NDArray[np.float64]) -> Examples:
        return Examples(np.stack([hard + shift + 0.01 * noise, np.ones(500)], 1), mean)

    own, other = examples(0.1, generator.normal(size=500)), examples(0.0, generator.normal(size=500))
    low, high = paired_interval(own, other.statistics)
    assert 0.09 < low < 0.1 < high < 0.11
    assert paired_interval(own, own.statistics) == (0, 0)


def test_other_examples_are_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_interval(_right(3, 4), _right(3, 5).statistics)


def test_statistics_are_kept_in_the_run(tmp_path: Path) -> None:
    first, second = tmp_path / "lin-1", tmp_path / "pow-1"
    for directory in (first, second):
        directory.mkdir()
    own, other = _right(300, 400), _right(260, 400)
    assert difference_interval(own, second, first) is None
    assert difference_interval(other, first, first) is None
    assert difference_interval(own, second, first) == paired_interval(own, other.statistics)
