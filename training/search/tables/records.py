"""Results of a table's rows: one JSON line for each row and seed that was trained."""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError

from training.recipe import Value
from training.recipe.loading import parse_recipe
from training.search.tables.definitions import Table, comparable
from training.settings import PositiveInt, Settings

__all__ = [
    "Interval",
    "Machine",
    "Point",
    "Result",
    "Trial",
    "append",
    "chosen",
    "current",
    "missing",
    "of_same_recipe",
    "path_of",
    "processor",
    "read",
    "this_machine",
    "trials_left",
]

Status = Literal["finished", "diverged", "failed"]


class Machine(Settings):
    """The computer that a row was trained on."""

    processor: str
    """Model of the CPU, or of the GPU where training used one."""
    cores: int
    threads: int
    """Threads that torch computed with."""
    torch: str
    precision: str = "float32"
    """Precision of products; that of results without the field."""


class Point(Settings):
    """One evaluation on the development set."""

    epoch: int
    step: int
    train_loss: float | None
    """Mean loss a target since the last evaluation (nats); null where it is not finite."""
    metric: float | None
    """Null where it is not finite."""
    seconds: float
    """Training time so far."""


class Trial(Settings):
    """One combination of a row's grid, trained at the search's budget."""

    values: Mapping[str, Value]
    """The values of the fields of the recipe, by dotted path."""
    metric: float | None
    """The best on the validation set; null where training failed or diverged."""
    seconds: float
    """Training time."""


class Interval(Settings):
    """95 % bootstrap interval over test examples of a row's metric minus that of the first row with the same seed."""

    low: float
    high: float
    reference: float
    """Metric of the first row, which the interval is relative to."""


class Result(Settings):
    """One row, trained with one seed. Failed rows and rows that diverged have results too."""

    row: str
    seed: PositiveInt
    status: Status
    reason: str | None = None
    """Why the row has no metrics."""
    dev_metric: str
    """Name of the metric of the curve, which selects the checkpoint."""
    dev: float | None = None
    """The best of the curve."""
    test: Mapping[str, float]
    """All metrics of the selected checkpoint on the test split; empty unless finished."""
    interval: Interval | None = None
    """Of the difference from the table's first row; null for this row itself, and where its run was not there."""
    curve: Sequence[Point]
    seconds: float
    """Training time, without evaluations."""
    processor_seconds: float | None = None
    """Time of the process on processors in that time; null in results of earlier versions."""
    parameters: int | None = None
    revision: str
    """Commit of the code, `-dirty` appended where files differed; several with commas, if a session had another."""
    machine: Machine
    recipe: Mapping[str, Any]
    trials: Sequence[Trial] = Field(default_factory=list)
    """The search that chose values of the recipe; empty in a table without one."""

    def best(self, *, maximize: bool) -> Point | None:
        """Return the best evaluation on the development set, the first of equal ones; None where none is finite."""
        finite = [point for point in self.curve if point.metric is not None]
        sign = -1 if maximize else 1
        return min(finite, key=lambda point: sign * (point.metric or 0.0), default=None)

    def ended(self, *, maximize: bool) -> bool:
        """Return whether a later evaluation was no better than the best one."""
        return bool(self.curve) and self.best(maximize=maximize) != self.curve[-1]


def this_machine(device: torch.device, precision: str) -> Machine:
    """Return the computer that this process trains on, in that precision."""
    cores, threads = torch.multiprocessing.cpu_count(), torch.get_num_threads()
    return Machine(
        processor=processor(device), cores=cores, threads=threads, torch=torch.__version__, precision=precision
    )


def processor(device: torch.device) -> str:
    """Return the model of a GPU, or of this computer's CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def path_of(table: Table, directory: Path) -> Path:
    """Return the file of a table's results."""
    return directory / f"{table.name}.jsonl"


def append(path: Path, result: Result) -> None:
    """Add a line to a file of results, in one write: other processes may add lines at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write(f"{result.model_dump_json()}\n".encode())


def read(path: Path) -> list[Result]:
    """Return the results of a file, none where there is no file; raises `ValueError` for a line that is none."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        return [Result.model_validate(json.loads(line)) for line in lines]
    except ValueError as error:
        raise ValueError(f"{path} is not a file of results: {error}") from error


def current(table: Table, results: Sequence[Result]) -> dict[tuple[str, int], Result]:
    """Return the last result of each row and seed of the table, without those of other recipes than the table's.

    A grid may have grown since: all results of a row are then those of the most trials.
    """
    valid = [each for each in results if _is_current(table, each)]
    most = {row: max((len(each.trials) for each in valid if each.row == row), default=0) for row in table.rows}
    last = {(each.row, each.seed): each for each in valid if len(each.trials) == most[each.row]}
    return {(row, seed): last[row, seed] for row in table.rows for seed in table.seeds if (row, seed) in last}


def trials_left(table: Table, result: Result) -> int:
    """Return the number of points of a row's grid that had not been tried for a result."""
    return len(table.rows[result.row].points()) - len(result.trials)


def _is_current(table: Table, result: Result) -> bool:
    if result.row not in table.rows or result.seed not in table.seeds:
        return False
    points = table.rows[result.row].points()
    tried = [dict(each.values) for each in result.trials]
    if any(values not in points or tried.count(values) > 1 for values in tried):
        return False
    values = chosen(result.trials, maximize=table.maximize)
    return _fields(result) == comparable(table.recipe_of(result.row, result.seed, values))


def of_same_recipe(
    table: Table, row: str, seed: int, trials: Sequence[Trial], results: Sequence[Result]
) -> Result | None:
    """Return the finished result with the values that trials choose, with these trials: its own may be fewer."""
    wanted = comparable(table.recipe_of(row, seed, chosen(trials, maximize=table.maximize)))
    for each in reversed(results):
        if (each.row, each.seed, each.status) == (row, seed, "finished") and _fields(each) == wanted:
            return each.model_copy(update={"trials": trials})
    return None


def chosen(trials: Sequence[Trial], *, maximize: bool) -> Mapping[str, Value]:
    """Return the values of the best trial, those of the first where all failed; none without trials."""
    sign = -1 if maximize else 1
    best = min(trials, key=lambda trial: math.inf if trial.metric is None else sign * trial.metric, default=None)
    return {} if best is None else best.values


def _fields(result: Result) -> dict[str, object] | None:
    """Return the fields that a result depends on, with the defaults of those that recipes did not have at the time.

    The precision is the one that was used, where the recipe had the default.
    """
    loop = {**result.recipe["loop"], "precision": result.machine.precision}
    try:
        return comparable(parse_recipe({**result.recipe, "loop": loop}))
    except ValidationError:
        return None


def missing(table: Table, found: Mapping[tuple[str, int], Result]) -> list[tuple[str, int]]:
    """Return rows and seeds without a result, or of a smaller grid: all rows with the first seed come first."""
    done = {key for key, result in found.items() if not trials_left(table, result)}
    return [(row, seed) for seed in table.seeds for row in table.rows if (row, seed) not in done]
