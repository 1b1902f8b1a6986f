"""`softserve-train table`: train the missing rows of a comparison table, list the tables."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from training.device import choose_device
from training.output import console
from training.run.directory import RunDirectory
from training.run.session import use_threads
from training.search.analyses.tables import Rows
from training.search.tables.definitions import DIRECTORY, TABLES, Table, get_table
from training.search.tables.page import PAGE, write_page
from training.search.tables.records import Trial, append, current, missing, of_same_recipe, path_of, read, trials_left
from training.search.tables.runner import run_row, search_row

__all__ = ["table"]

T = TypeVar("T")


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
    results: Path = DIRECTORY,
    page: Path = PAGE,
) -> int:
    """Trains and tests the rows of a comparison table that have no result yet; without a name, lists the tables.

    Each row is a run of its own in <runs>/table-<name>/<row>-<seed>, which the same command resumes after an
    interruption. Before its first run, a row of a table with a search chooses its hyperparameters on the validation
    set, in <runs>/table-<name>/<row>-search. The result is a line of <results>/<name>.jsonl; then the page is written
    anew. Several processes may train different rows or seeds at the same time, see --rows and --seeds.

    Args:
        name: A table of training/results/tables.yaml.
        data_dir: Directory that holds the corpora (`softserve-train corpora`).
        runs: Parent of the directory table-<name>.
        device: auto, cpu, or a CUDA device such as cuda:0.
        rows: Only these rows.
        seeds: Only these seeds.
        retry: Train rows that failed or diverged again.
        only_page: Train nothing, and write the page from the results that are there.
        threads: Threads that compute on the CPU, by default one for each core.
        results: Directory of the result files.
        page: The page of all tables, docs/results.md of a checkout; its plots go to the folder figures next to it.
    """
    if only_page:
        return _write_page(results, page)
    if name is None:
        return _list_tables(results)
    use_threads(threads)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("a table is trained by one process: each would train and append all rows")
    chosen, where = get_table(name), choose_device(device)
    some, with_seeds = _known(rows, tuple(chosen.rows), "rows"), _known(seeds, chosen.seeds, "seeds")
    left = _without_result(chosen, results, retry)
    wanted = [(row, seed) for row, seed in left if row in some and seed in with_seeds]
    for number, (row, seed) in enumerate(wanted, 1):
        console.print(f"{chosen.name}: row {row}, seed {seed} ({number} of {len(wanted)})")
        parent = runs / f"table-{chosen.name}"
        directory = parent / f"{row}-{seed}"
        trials, result = _known_trials(chosen, row, results), None
        if chosen.search is not None:
            failed = bool(trials) and all(trial.metric is None for trial in trials)  # here only with --retry
            if failed or not trials:
                place = parent / f"{row}-search"
                trials = search_row(chosen, row, place, data_dir, where, console.print, again=failed)
            result = of_same_recipe(chosen, row, seed, trials, read(path_of(chosen, results)))
        if result is None:
            result = run_row(chosen, row, seed, directory, data_dir, where, trials)
            if result.status == "finished":
                RunDirectory(directory).last.unlink()  # most of the directory, and there is nothing left to resume
        append(path_of(chosen, results), result)
        console.print(f"{row}, seed {seed}: {result.status} {result.reason or _metrics(result.test)}")
        _write_page(results, page)
    if not wanted:
        console.print(f"{chosen.name}: no row is missing in {results}; with another --results, all are trained again")
    return 0


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


def _known_trials(chosen: Table, row: str, results: Path) -> Sequence[Trial]:
    """Return the trials that the row's results of other seeds come from."""
    found = current(chosen, read(path_of(chosen, results)))
    of_row = (found[row, seed] for seed in chosen.seeds if (row, seed) in found)
    return next((each.trials for each in of_row if not trials_left(chosen, each)), ())


def _list_tables(results: Path) -> int:
    listed = Rows(["table", "title", "finished", "diverged or failed", "not run"])
    for each in TABLES.values():
        found = current(each, read(path_of(each, results)))
        left = missing(each, found)
        done = [result.status for key, result in found.items() if key not in left]
        finished = done.count("finished")
        listed.add([each.name, each.title, finished, len(done) - finished, len(left)])
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
