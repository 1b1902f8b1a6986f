"""`softserve-train table`: train the missing rows of a comparison table, list the tables."""

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import torch
import tyro

from training.device import choose_device
from training.output import console
from training.run.directory import git_revision
from training.run.session import use_threads
from training.search.analyses.tables import Rows
from training.search.tables.definitions import DIRECTORY, TABLES, Table, get_table
from training.search.tables.findings import standing
from training.search.tables.page import PAGE, write_page
from training.search.tables.records import current, missing, path_of, read
from training.search.tables.runner import Places, train_row
from training.search.tables.schedule import Job, expected_seconds, ordered
from training.search.tables.side_by_side import Limits, train_rows
from training.search.tables.summary import summarize
from training.search.time_trial import time_trial

__all__ = ["table"]

T = TypeVar("T")
_ALL = "all"
"""Name of all tables together."""


def table(
    name: Annotated[str | None, tyro.conf.Positional] = None,
    data_dir: Path = Path("data"),
    runs: Path = Path("runs"),
    device: str = "auto",
    rows: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    retry: bool = False,
    only_page: bool = False,
    threads: int | None = None,
    jobs: int | None = None,
    minutes: float | None = None,
    results: Path = DIRECTORY,
    page: Path = PAGE,
) -> int:
    """Trains and tests the rows of a comparison table that have no result yet; without a name, lists the tables.

    Each row is a run of its own in <runs>/table-<name>/<row>-<seed>, which the same command resumes after an
    interruption. Before its first run, a row of a table with a search chooses its hyperparameters on the validation
    set, in <runs>/table-<name>/<row>-search. The result is a line of <results>/<name>.jsonl; then the page is written
    anew, and the differences of the table's rows are printed with their intervals. Several processes may train
    different rows or seeds at the same time: --jobs starts them.

    Args:
        name: A table of training/results/tables.yaml, or all: every table, rows with the fewest seeds first.
        data_dir: Directory that holds the corpora (`softserve-train corpora`).
        runs: Parent of the directory table-<name>.
        device: auto, cpu, or a CUDA device such as cuda:0.
        rows: Only these rows.
        seeds: Only these seeds.
        retry: Train rows that failed or diverged again.
        only_page: Train nothing, and write the page from the results that are there.
        threads: Threads that compute on the CPU, by default one for each core, shared by the processes of --jobs.
        jobs: Rows that are trained at the same time, each by a process of its own; on one GPU they share its memory.
        minutes: Start only rows that are expected to end within this time, by earlier results or a trial of some
            steps, and interrupt those that take much longer.
        results: Directory of the result files; those of a checkout are of committed files alone.
        page: The page of all tables, docs/results.md of a checkout; its plots go to the folder figures next to it.
    """
    if only_page:
        return _write_page(results, page)
    if name is None:
        return _list_tables(results)
    use_threads(threads)
    _check(name, rows, seeds, jobs, minutes)
    chosen, where = dict(TABLES) if name == _ALL else {name: get_table(name)}, choose_device(device)
    wanted = [job for each in chosen.values() for job in _wanted(each, rows, seeds, results, retry)]
    places = Places(data_dir=data_dir, runs=runs, results=results)
    if wanted:
        _check_revision(results)

    def ended(job: Job) -> None:
        _show_result(chosen[job.table], job, results)
        _write_page(results, page)

    if not wanted:
        console.print(f"{name}: no row is missing in {results}; with another --results, all are trained again")
    elif jobs is None and minutes is None and name != _ALL:
        for number, job in enumerate(wanted, 1):
            console.print(f"{name}: row {job.row}, seed {job.seed} ({number} of {len(wanted)})")
            train_row(chosen[job.table], job.row, job.seed, places, where, console.print)
            ended(job)
    else:
        count = 1 if jobs is None else jobs
        limits = Limits(
            processes=count,
            device=device,
            threads=threads or max(1, (os.cpu_count() or 1) // count),
            seconds=math.inf if minutes is None else 60 * minutes,
        )
        expected = _expected(wanted, chosen, places, where)
        order = _ordered(wanted, expected, chosen, results)
        if left := train_rows(order, chosen, expected, places, limits, console.print, ended):
            console.print(f"{len(left)} of {len(wanted)} rows and seeds are left: the same command trains them")
    return 0


def _check(name: str, rows: Sequence[str], seeds: Sequence[int], jobs: int | None, minutes: float | None) -> None:
    """Raise `ValueError` for options that do not fit."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("a table is trained by one process: each would train and append all rows; see --jobs")
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs must be at least 1, not {jobs}")
    if minutes is not None and minutes <= 0:
        raise ValueError(f"--minutes must be positive, not {minutes:g}")
    if name == _ALL and (rows or seeds):
        raise ValueError("--rows and --seeds are those of one table")


def _check_revision(results: Path) -> None:
    """Raise `ValueError` where the code of results that are shipped could not be found again."""
    revision = git_revision()
    if results.resolve() == DIRECTORY and revision.endswith("-dirty"):
        raise ValueError(
            f"files differ from commit {revision.removesuffix('-dirty')}, so that rows could not be trained again from "
            f"a commit: commit the changes, or keep results of your own with --results DIRECTORY"
        )


def _wanted(chosen: Table, rows: Sequence[str], seeds: Sequence[int], results: Path, retry: bool) -> Iterator[Job]:
    some, with_seeds = _known(rows, tuple(chosen.rows), "rows"), _known(seeds, chosen.seeds, "seeds")
    for row, seed in _without_result(chosen, results, retry):
        if row in some and seed in with_seeds:
            yield Job(chosen.name, row, seed)


def _expected(
    wanted: Sequence[Job], chosen: Mapping[str, Table], places: Places, device: torch.device
) -> dict[Job, float]:
    """Return the expected seconds of each job: by results, else by a trial of the table's first row."""
    found = {name: current(each, read(path_of(each, places.results))) for name, each in chosen.items()}
    tried: dict[str, float] = {}
    expected = {}
    for job in wanted:
        seconds = expected_seconds(chosen[job.table], job.row, found[job.table])
        if seconds is None:
            if job.table not in tried:
                tried[job.table] = _trial(chosen[job.table], job, places, device)
            seconds = tried[job.table]
        expected[job] = seconds
    return expected


def _trial(chosen: Table, job: Job, places: Places, device: torch.device) -> float:
    console.print(f"{chosen.name}: timing a few steps, as there is no result yet")
    recipe = chosen.recipe_of(job.row, job.seed)
    trials = 0 if chosen.search is None else chosen.search.trials
    return (1 + trials) * time_trial(recipe, places.data_dir, device).seconds(recipe.loop.epochs)


def _ordered(
    wanted: Sequence[Job], expected: Mapping[Job, float], chosen: Mapping[str, Table], results: Path
) -> list[Job]:
    finished: Counter[tuple[str, str]] = Counter()
    for each in chosen.values():
        finished.update((each.name, row) for row, _ in current(each, read(path_of(each, results))))
    first = {(each.name, next(iter(each.rows))) for each in chosen.values()}
    return ordered(wanted, expected, finished, first)


def _show_result(chosen: Table, job: Job, results: Path) -> None:
    """Print the result of a row, and the differences of all rows that are known now."""
    found = current(chosen, read(path_of(chosen, results)))
    result = found[job.row, job.seed]
    console.print(f"{job.row}, seed {job.seed}: {result.status} {result.reason or _metrics(result.test)}")
    for line in standing(chosen, summarize(chosen, found)):
        console.print(f"  {line}")


def _metrics(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def _known(given: Sequence[T], known: Sequence[T], what: str) -> Sequence[T]:
    """Return the names that are given, or all; raises `ValueError` for one that the table does not have."""
    unknown = [str(each) for each in given if each not in known]
    if unknown:
        raise ValueError(f"{what}: the table has {', '.join(map(str, known))}, not {', '.join(unknown)}")
    return given or known


def _without_result(chosen: Table, results: Path, retry: bool) -> list[tuple[str, int]]:
    found = current(chosen, read(path_of(chosen, results)))
    kept = {key: each for key, each in found.items() if each.status == "finished" or not retry}
    return missing(chosen, kept)


def _list_tables(results: Path) -> int:
    listed = Rows(["table", "title", "finished", "diverged or failed", "of fewer trials", "not run"])
    for each in TABLES.values():
        found = current(each, read(path_of(each, results)))
        left = missing(each, found)
        done = [result.status for key, result in found.items() if key not in left]
        finished = done.count("finished")
        fewer = sum(key in found for key in left)  # the page has them, and a grid has grown since
        listed.add([each.name, each.title, finished, len(done) - finished, fewer, len(left) - fewer])
    listed.show("tables, number of rows times seeds")
    return 0


def _write_page(results: Path, page: Path) -> int:
    """Write the page where its folder is there: an installed package has no docs."""
    if not page.parent.is_dir():
        console.print(f"there is no folder {page.parent}, so no page is written")
        return 0
    write_page(page, results)
    console.print(f"wrote {page}")
    return 0
