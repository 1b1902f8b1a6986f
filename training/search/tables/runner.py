"""Train and measure one row of a table with one seed, in a run directory that resumes."""

import contextlib
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training.recipe import Recipe, RecipeError
from training.run.directory import Evaluation, RunDirectory, git_revision
from training.run.optimization import resolved_precision
from training.run.session import load_trained, train
from training.search.tables.bootstrap import paired_interval, read_statistics, write_statistics
from training.search.tables.definitions import Table, comparable
from training.search.tables.records import (
    Point,
    Result,
    Trial,
    append,
    chosen,
    current,
    of_same_recipe,
    path_of,
    read,
    this_machine,
    trials_left,
)
from training.tasks.registry import TASKS

__all__ = ["Places", "run_row", "search_row", "train_row"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """The directories of a table's training."""

    data_dir: Path
    """Corpora."""
    runs: Path
    """Parent of the directories table-<name>."""
    results: Path
    """Files of results."""


def train_row(
    table: Table, row: str, seed: int, places: Places, device: torch.device, report: Callable[[str], None]
) -> Result:
    """Search for a row's hyperparameters where it has a search and no trials, train it, and append its result."""
    file, parent = path_of(table, places.results), places.runs / f"table-{table.name}"
    trials, result = _known_trials(table, row, file), None
    if table.search is not None:
        failed = bool(trials) and all(trial.metric is None for trial in trials)  # repeated only where it is asked for
        if failed or not trials:
            search = parent / f"{row}-search"
            trials = search_row(table, row, search, places.data_dir, device, report, again=failed)
        result = of_same_recipe(table, row, seed, trials, read(file))
    if result is None:
        directory = parent / f"{row}-{seed}"
        result = run_row(table, row, seed, directory, places.data_dir, device, trials)
        if result.status == "finished":
            RunDirectory(directory).last.unlink()  # most of the directory, and there is nothing left to resume
    append(file, result)
    return result


def _known_trials(table: Table, row: str, file: Path) -> Sequence[Trial]:
    """Return the trials that the row's results of other seeds come from."""
    found = current(table, read(file))
    of_row = (found[row, seed] for seed in table.seeds if (row, seed) in found)
    return next((each.trials for each in of_row if not trials_left(table, each)), ())


def search_row(
    table: Table,
    row: str,
    directory: Path,
    data_dir: Path,
    device: torch.device,
    report: Callable[[str], None],
    *,
    again: bool = False,
) -> list[Trial]:
    """Train the trials of a row's grid that are left, and return all in the order of the grid.

    The search of each definition of the row has a folder of its own in `directory`; points of an earlier grid are not
    repeated, unless all are wanted `again`. Raises `ValueError` where another process trains some of the trials.
    """
    from training.search.tune import Search, clear_search

    recipe = table.search_of(row)
    definition = hashlib.sha256(_definition(recipe).encode()).hexdigest()[:8]
    if again:
        clear_search(directory / definition)
    search = Search(recipe, directory / definition, data_dir, device)
    search.run(report)
    trials = [
        Trial(values=each.values, metric=None if each.failed else each.metric, seconds=each.seconds)
        for each in search.results()
    ]
    found = [trial for point in table.rows[row].points() for trial in trials if trial.values == point]
    if len(found) < len(table.rows[row].points()):
        raise ValueError(f"another process trains trials of row {row!r}; wait for it, and run this command again")
    return found


def _definition(recipe: Recipe) -> str:
    """Return the fields that trials depend on; defaults are left out, so that new fields of recipes change nothing."""
    return recipe.model_dump_json(exclude={"tune", "export"}, exclude_defaults=True)


def run_row(
    table: Table,
    row: str,
    seed: int,
    directory: Path,
    data_dir: Path,
    device: torch.device,
    trials: Sequence[Trial] = (),
) -> Result:
    """Train a row from the start or from its last checkpoint, measure its best checkpoint, and return the result.

    `trials` are those of the row's search, which choose values of its recipe.

    A training with a loss or metric that is not finite has diverged; one that torch cannot compute, for lack of memory
    for example, has failed. Both are results; other errors and interruptions are raised.
    """
    values = chosen(trials, maximize=table.maximize)
    recipe, run = table.recipe_of(row, seed, values), RunDirectory(directory)
    measured: dict[str, Any] = {"test": {}}
    try:
        if trials and all(each.metric is None for each in trials):
            raise FloatingPointError("all trials of the search failed or diverged")
        train(recipe, run, data_dir, device, restart=_is_of_another(run, recipe))
        first = directory.parent / f"{next(iter(table.rows))}-{seed}"
        measured |= _measured(table, run, first, data_dir, device)
    except FloatingPointError as error:
        measured |= {"status": "diverged", "reason": str(error)}
    except RuntimeError as error:
        measured |= {"status": "failed", "reason": (str(error).splitlines() or [type(error).__name__])[0]}
    history = run.history()
    finite = [each.metric for each in history if math.isfinite(each.metric)]
    return Result(
        row=row,
        seed=seed,
        dev_metric=TASKS[recipe.task].metric_of(recipe),
        dev=(max if table.maximize else min)(finite, default=None),
        curve=[_point(each) for each in history],
        seconds=history[-1].seconds if history else 0.0,
        processor_seconds=history[-1].processor_seconds if history else 0.0,
        revision=_provenance(run).get("git_revision", git_revision()),
        machine=this_machine(device, resolved_precision(recipe.loop, device)),
        recipe=recipe.model_dump(mode="json", exclude={"tune"}),
        trials=trials,
        **measured,
    )


def _provenance(run: RunDirectory) -> dict[str, str]:
    """Return what the run was trained with; nothing where it failed before."""
    with contextlib.suppress(FileNotFoundError):
        return run.provenance()
    return {}


def _is_of_another(run: RunDirectory, recipe: Recipe) -> bool:
    """Return whether a directory holds a run of another recipe, such as an earlier one of the table."""
    try:
        return comparable(run.recipe()) != comparable(recipe)
    except (FileNotFoundError, RecipeError):
        return run.path.exists()


def _measured(table: Table, run: RunDirectory, first: Path, data_dir: Path, device: torch.device) -> dict[str, Any]:
    """Return the metrics of a run's best checkpoint, and the interval of the difference from the `first` row's run.

    Raises `FloatingPointError` if a metric is not finite.
    """
    task = load_trained(run, data_dir, str(device))
    measurement = task.measure(table.split)
    metrics, examples, interval = measurement.metrics, measurement.examples, None
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise FloatingPointError(f"the {table.split} {name} is {value}")
    if examples is not None and math.isclose(examples.value, metrics[table.metric], rel_tol=1e-4):
        write_statistics(examples, run.path)
        if run.path != first and (reference := read_statistics(first)) is not None:
            interval = paired_interval(examples, reference)
    parameters = sum(parameter.numel() for parameter in task.model.parameters())
    return {"status": "finished", "test": metrics, "interval": interval, "parameters": parameters}


def _point(evaluation: Evaluation) -> Point:
    loss, metric = (value if math.isfinite(value) else None for value in (evaluation.train_loss, evaluation.metric))
    return Point(
        epoch=evaluation.epoch, step=evaluation.step, train_loss=loss, metric=metric, seconds=evaluation.seconds
    )
