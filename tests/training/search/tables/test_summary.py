"""Tests of the statistics of tables, by hand."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from training.search.tables.definitions import Table
from training.search.tables.records import Interval, Result
from training.search.tables.summary import Mean, RowSummary, correlation, spearman, summarize


def test_rank_correlation_by_hand() -> None:
    assert spearman([1.0, 2.0, 3.0], [10.0, 20.0, 400.0]) == pytest.approx(1)
    assert spearman([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1)
    assert spearman([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0]) == pytest.approx(1 - 6 * 4 / (4 * 15))
    assert spearman([1.0, 1.0, 2.0], [1.0, 2.0, 3.0]) == pytest.approx(math.sqrt(3) / 2)  # ranks 1.5, 1.5, 3
    assert math.isnan(spearman([1.0, 1.0], [1.0, 2.0]))


def test_means_by_hand() -> None:
    assert Mean.of([]) is None
    assert Mean.of([2.0]) == Mean(2.0, None, 1, 2.0, 2.0)
    assert Mean.of([1.0, 3.0]) == Mean(2.0, math.sqrt(2), 2, 1.0, 3.0)
    assert Mean(2.0, None, 1, 2.0, 2.0).interval is None
    width = 4.303 / math.sqrt(3)
    assert Mean(2.0, 1.0, 3, 1.0, 3.0).interval == pytest.approx((2 - width, 2 + width), abs=1e-3)


def test_an_interval_over_examples_is_of_the_same_reference(table: Table, make: Callable[..., Result]) -> None:
    percent = replace(table, scale=100)
    lin, other = make("lin", 1, 0.5), make("pow", 1, 0.75)
    interval = Interval(low=0.1, high=0.4, reference=0.5)
    with_interval = other.model_copy(update={"interval": interval})
    _, row = summarize(percent, {("lin", 1): lin, ("pow", 1): with_interval})
    assert row.over_examples == pytest.approx((10, 40))
    _, row = summarize(percent, {("lin", 1): make("lin", 1, 0.6), ("pow", 1): with_interval})
    assert row.over_examples is None
    both = {
        ("lin", 1): lin,
        ("pow", 1): with_interval,
        ("lin", 2): make("lin", 2, 0.5),
        ("pow", 2): make("pow", 2, 0.7),
    }
    _, row = summarize(percent, both)
    assert row.interval is not None
    assert row.over_examples is None


def test_rows_are_summarized_over_seeds_that_finished(table: Table, make: Callable[..., Result]) -> None:
    results = [make("lin", 1, 40.0), make("lin", 2, 44.0), make("pow", 1, None)]
    lin, power = summarize(table, {(each.row, each.seed): each for each in results})
    assert lin.test == Mean(42.0, math.sqrt(8), 2, 40.0, 44.0)
    assert lin.dev == Mean(41.0, math.sqrt(8), 2, 39.0, 43.0)
    assert (power.test, power.dev, power.paper, power.difference, power.parameters) == (None, None, 46.9, None, None)
    assert (lin.difference, lin.parameters) == (None, 1_250_000)
    assert [each.status for each in power.results] == ["diverged"]
    assert correlation([lin, power]) is None


def test_the_correlation_is_over_rows_that_finished(table: Table, make: Callable[..., Result]) -> None:
    (lin, *_) = summarize(table, {("lin", 1): make("lin", 1, 40.0)})
    both = [(1.0, 5.0), (2.0, 6.0), (3.0, 7.0), (4.0, 8.0), (5.0, 9.0), (6.0, 10.0)]
    rows = [_with(lin, ours, paper) for ours, paper in [*both, (4.0, None), (None, 8.0)]]
    found = correlation(rows)
    assert found is not None
    assert (found.value, found.rows) == (pytest.approx(1), 6)
    assert found.p == pytest.approx(2 / math.factorial(6), abs=2e-3)  # this order and its reverse
    assert correlation(rows[1:]) is None
    assert correlation([_with(lin, 1.0, paper) for _, paper in both]) is None


def test_a_row_whose_validation_metric_never_changes_did_not_learn(table: Table, make: Callable[..., Result]) -> None:
    lin, other = make("lin", 1, 40.0), make("pow", 1, 90.0)
    constant = other.model_copy(update={"curve": [each.model_copy(update={"metric": 90.0}) for each in other.curve]})
    first, row = summarize(table, {("lin", 1): lin, ("pow", 1): constant})
    assert (first.learned, row.learned) == (True, False)
    assert row.test is not None
    assert (row.difference, row.over_examples) == (None, None)


def _with(row: RowSummary, ours: float | None, paper: float | None) -> RowSummary:
    return replace(row, test=None if ours is None else Mean.of([ours]), paper=paper)
