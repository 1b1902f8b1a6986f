"""Tests of the order of missing rows and of their expected times."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from training.search.tables.definitions import GridSearch, Table
from training.search.tables.records import Result
from training.search.tables.schedule import Job, expected_seconds, next_job, ordered

LIN, POW, LOG = (Job("toy", row, 1) for row in ("lin", "pow", "log"))


def test_the_expected_time_is_that_of_the_row_or_of_its_table(table: Table, make: Callable[..., Result]) -> None:
    assert expected_seconds(table, "lin", {}) is None
    found = {("lin", seed): make("lin", seed, 40.0).model_copy(update={"seconds": 10.0 * seed}) for seed in (1, 2)}
    assert expected_seconds(table, "lin", found) == 15.0
    found["pow", 1] = make("pow", 1, 40.0).model_copy(update={"seconds": 60.0})
    assert expected_seconds(table, "pow", found) == 60.0
    assert expected_seconds(table, "log", found) == 30.0
    assert expected_seconds(table, "log", {("pow", 1): make("pow", 1, None)}) is None  # diverged


def test_a_search_of_a_row_without_results_takes_its_trials_as_well(table: Table, make: Callable[..., Result]) -> None:
    grid = {"loop.learning_rate": (1e-3, 2e-3)}
    rows = {name: replace(row, grid=grid) for name, row in table.rows.items()}
    searched = replace(table, rows=rows, search=GridSearch(trials=2))
    found = {("lin", 1): make("lin", 1, 40.0)}
    assert [expected_seconds(searched, row, found) for row in ("lin", "pow")] == [120.0, 360.0]


def test_first_seeds_come_first_then_the_row_that_others_are_compared_with_then_short_ones() -> None:
    jobs = [Job("toy", row, seed) for seed in (1, 2) for row in ("lin", "pow", "log")]
    seconds = {"lin": 9.0, "pow": 5.0, "log": 1.0}
    order = ordered(jobs, {job: seconds[job.row] for job in jobs}, {}, {("toy", "lin")})
    assert order == [*(LIN, LOG, POW), *(Job("toy", row, 2) for row in ("lin", "log", "pow"))]


def test_seeds_that_have_results_count() -> None:
    """The third seed of `lin` comes after the second one of `pow`, whatever their numbers."""
    jobs = [Job("toy", "lin", 3), Job("toy", "pow", 2), LOG]
    order = ordered(jobs, dict.fromkeys(jobs, 1.0), {("toy", "lin"): 2, ("toy", "pow"): 1}, {("toy", "lin")})
    assert order == [LOG, Job("toy", "pow", 2), Job("toy", "lin", 3)]


@pytest.mark.parametrize(
    ("seconds", "running", "found"),
    [(9.0, [], LIN), (8.0, [], LOG), (0.5, [], None), (9.0, [Job("toy", "lin", 2)], POW), (1.0, [LOG], None)],
)
def test_the_next_job_fits_the_time_and_its_row_is_not_being_trained(
    seconds: float, running: list[Job], found: Job | None
) -> None:
    expected = {LIN: 9.0, POW: 9.0, LOG: 1.0}
    assert next_job([LIN, POW, LOG], running, expected, seconds) == found
