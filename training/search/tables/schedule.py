"""The order in which missing rows of comparison tables are trained, and how long each is expected to take. Pure."""

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from training.search.tables.definitions import Table
from training.search.tables.records import Result

__all__ = ["Job", "expected_seconds", "next_job", "ordered"]


@dataclass(frozen=True, slots=True)
class Job:
    """A row of a table that is to be trained with a seed."""

    table: str
    row: str
    seed: int


def expected_seconds(table: Table, row: str, found: Mapping[tuple[str, int], Result]) -> float | None:
    """Return the mean training time of a row's results, else of the table's results; None where there is none.

    The results may be of other machines, so that the times are right up to a factor.
    """
    of_row = [each.seconds for (name, _), each in found.items() if name == row and each.status == "finished"]
    of_table = [each.seconds for each in found.values() if each.status == "finished"]
    own = of_row or of_table
    trials = 0 if of_row or table.search is None else table.search.trials
    return (1 + trials) * statistics.fmean(own) if own else None


def ordered(
    jobs: Iterable[Job],
    expected: Mapping[Job, float],
    finished: Mapping[tuple[str, str], int],
    first: Collection[tuple[str, str]],
) -> list[Job]:
    """Return jobs in the order of their use: a row's first seed before the second one of another row, then by time.

    `finished` has the number of seeds of a table and row that have results, and `first` the tables and rows that others
    are compared with, which come before those.
    """
    remaining = sorted(jobs, key=lambda job: (job.table, job.row, job.seed))
    count = dict(finished)
    seeds_before: dict[Job, int] = {}
    for job in remaining:
        key = job.table, job.row
        seeds_before[job] = count.get(key, 0)
        count[key] = seeds_before[job] + 1
    return sorted(remaining, key=lambda job: (seeds_before[job], (job.table, job.row) not in first, expected[job]))


def next_job(
    left: Sequence[Job], running: Collection[Job], expected: Mapping[Job, float], seconds: float
) -> Job | None:
    """Return the first job that ends within so many seconds, None where there is none now.

    A row is trained with one seed at a time, since its first one may search for the hyperparameters of all.
    """
    busy = {(job.table, job.row) for job in running}
    return next((job for job in left if (job.table, job.row) not in busy and expected[job] <= seconds), None)
