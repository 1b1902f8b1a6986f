"""Tests of the findings of comparison tables: verdicts by intervals, and trainings that had ended."""

from collections.abc import Callable

import pytest

from training.search.tables.definitions import Table
from training.search.tables.findings import findings, verdict_of
from training.search.tables.records import Point, Result
from training.search.tables.summary import RowSummary, summarize

Make = Callable[..., Result]


def _summaries(table: Table, results: list[Result]) -> list[RowSummary]:
    return summarize(table, {(each.row, each.seed): each for each in results})


def _results(make: Make, differences: tuple[float, float]) -> list[Result]:
    pairs = [("lin", 40.0, seed) for seed in (1, 2)] + [
        ("pow", 40.0 + difference, seed) for seed, difference in enumerate(differences, 1)
    ]
    return [make(row, seed, value) for row, value, seed in pairs]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [((-1.0, -1.1), "better"), ((1.0, 1.1), "worse"), ((-1.0, 1.0), "undecided"), ((1.0, 3.0), "undecided")],
)
def test_the_verdict_follows_from_the_interval(
    table: Table, make: Make, differences: tuple[float, float], verdict: str
) -> None:
    """By hand: differences 1 and 1.1 have the interval 1.05 ± 12.706 * 0.0707 / 1.414, which is 0.41 to 1.69."""
    row = _summaries(table, _results(make, differences))[1]
    assert verdict_of(row, maximize=False) == verdict
    opposite = {"better": "worse", "worse": "better"}.get(verdict, verdict)
    assert verdict_of(row, maximize=True) == opposite


def test_the_corrected_interval_is_wider(table: Table, make: Make) -> None:
    """At 99 % the quantile of t is 63.657: 1.05 ± 3.18."""
    row = _summaries(table, _results(make, (1.0, 1.1)))[1]
    assert verdict_of(row, maximize=False, confidence=0.99) == "undecided"
    assert row.difference is not None
    assert row.difference.interval_at(0.99) == pytest.approx((1.05 - 3.1829, 1.05 + 3.1829), abs=1e-4)


def test_rows_are_in_the_column_of_their_verdict(table: Table, make: Make) -> None:
    text = findings([(table, _summaries(table, _results(make, (-1.0, -1.1))))])
    question = "Is a kernel better than `lin`? [Kernels on a toy](#kernels-on-a-toy)"
    better = "`pow` -1.1 [-1.7, -0.4] *"  # one row is compared: the correction changes nothing
    metric = "perplexity, smaller is better"
    assert text.splitlines()[-1] == f"| {question} | {metric} | `lin` | {better} |  |  |  | 0 of 4 |"


def test_a_row_of_one_seed_has_no_verdict(table: Table, make: Make) -> None:
    text = findings([(table, _summaries(table, [make("lin", 1, 40.0), make("pow", 1, 39.0)]))])
    assert text.splitlines()[-1].endswith("|  |  |  | `pow` | 0 of 2 |")


def test_tables_without_differences_are_left_out(table: Table, make: Make) -> None:
    assert findings([(table, _summaries(table, [make("lin", 1, 40.0)]))]) == ""


def test_a_training_had_ended_where_a_later_evaluation_was_no_better(make: Make) -> None:
    result = make("lin", 1, 40.0)  # validation perplexities 90 and 39
    assert not result.ended(maximize=False)
    worse = Point(epoch=3, step=3, train_loss=1.0, metric=39.0, seconds=180.0)
    longer = result.model_copy(update={"curve": [*result.curve, worse]})
    assert longer.ended(maximize=False)
    best = longer.best(maximize=False)
    assert best is not None
    assert best.epoch == 2
