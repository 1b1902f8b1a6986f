"""Start a run, train it from the start or from its last checkpoint, and load its best checkpoint."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from models.tasks.registry import TASKS as MODELS
from training.device import choose_device
from training.output import console
from training.recipe import Recipe
from training.run import checkpoint
from training.run.baselines import verdict, write_baselines
from training.run.directory import Progress, RunDirectory, TrainedData
from training.run.distributed import joined
from training.run.locking import only_session
from training.run.loop import Trainer
from training.run.new_data import continue_with_new_data, data_of, described_change
from training.run.optimization import check_precision, resolved_precision
from training.run.resumption import continued
from training.tasks.registry import TASKS
from training.tasks.task import Task

__all__ = ["load_offering", "load_trained", "open_task", "start_run", "train", "use_threads"]


def train(
    settings: Recipe,
    directory: RunDirectory,
    data_dir: Path,
    device: torch.device,
    *,
    command: tuple[Path, Sequence[str]] | None = None,
    restart: bool = False,
    new_data: bool = False,
    baselines: bool = False,
    stop_after: int | None = None,
) -> Progress:
    """Train to the end, or for `stop_after` steps, and return the progress of the run.

    `command`, the recipe's file and its overrides, is noted in the run directory. Raises `RecipeError` where the
    directory holds a run that cannot continue with these settings, and `ValueError` where the data has changed, unless
    `restart` removes the run or `new_data` continues it, see `training.run.new_data`.
    """
    if restart and new_data:
        raise ValueError("give either --restart or --continue-with-new-data")
    with contextlib.ExitStack() as sessions, joined(device) as (group, own_device):
        say = Console(quiet=not group.is_first, soft_wrap=True, markup=False, highlight=False).print
        if group.size > 1 and (reason := TASKS[settings.task].single_process) is not None:
            raise ValueError(f"{settings.name} is trained by one process: {reason}")
        check_precision(settings.loop, own_device)  # before `_prepared`, which may remove an earlier run
        if group.is_first:
            sessions.enter_context(only_session(directory.path))
        prepared = _prepared(settings, directory, data_dir, restart, new_data) if group.is_first else None
        settings = group.from_first(prepared or settings)
        if group.is_first and command is not None:
            directory.write_command(*command)
        torch.manual_seed(settings.seed)
        task = open_task(settings, directory, data_dir, own_device)
        if not group.is_first:  # the weights are the same, what dropout drops is not
            torch.manual_seed(settings.seed + group.rank)
        for line in _description(task):
            say(line)
        if baselines and group.is_first and not directory.baselines.is_file():
            write_baselines(directory, task, say)
        progress = Trainer(task, directory, settings.loop, group).fit(say, stop_after)
        for line in _result(directory, progress, task):
            say(line)
    return progress


def _description(task: Task[Any]) -> Iterator[str]:
    """Yield lines about the data and the model of a run."""
    settings = task.recipe
    yield from settings.ineffective_fields()
    yield from settings.data.held_out_notes()
    parameters = sum(parameter.numel() for parameter in task.model.parameters())
    count = task.model.output_layer.weight.shape[0]
    products = f"{task.device}, {resolved_precision(settings.loop, task.device)}"
    yield f"{settings.name}: {parameters / 1e6:.2f}M parameters, {count} {task.outputs}; {products}"


def _result(directory: RunDirectory, progress: Progress, task: Task[Any]) -> Iterator[str]:
    """Yield lines about the best evaluation, none before the first one."""
    if (best := progress.best) is None:
        return
    inside = task.recipe.loop.evaluate_steps is not None
    place = f"step {best.step}" if inside else f"epoch {best.epoch}"
    yield f"best dev {task.metric} {best.metric:.3f} after {place}"
    if (behind := verdict(directory, progress, task.metric)) is not None:
        yield behind


def _prepared(settings: Recipe, directory: RunDirectory, data_dir: Path, restart: bool, new_data: bool) -> Recipe:
    """Start a run directory where there is none to continue; return the recipe that the run has."""
    if new_data and not directory.started:
        raise ValueError(f"--continue-with-new-data: {directory.path} holds no run to continue")
    if not directory.started or restart:
        console.print(f"{settings.name}: preparing the data")
        start_run(settings, directory, data_dir)
        return settings
    console.print(f"{settings.name}: comparing the data with that of {directory.path}")
    if new_data:
        splits = data_of(settings, data_dir)
        comparable = directory.data() and splits and directory.recipe().data == settings.data
        if not comparable or described_change(directory, settings, splits):
            continue_with_new_data(settings, directory, data_dir, splits, console.print)
            return settings
        console.print("--continue-with-new-data has no effect: the data has not changed")
    settings, changes = continued(directory, settings)
    splits = data_of(settings, data_dir)
    if change := described_change(directory, settings, splits):
        raise ValueError(
            f"the data of {directory.path} has changed: {change}. --continue-with-new-data keeps the weights and "
            "trains on with it, --restart starts over, and --set name=OTHER starts another run"
        )
    if not directory.data():  # a run of an earlier version
        directory.write_data([TrainedData(splits=splits)])
    for line in changes:
        console.print(line)
    directory.write_recipe(settings)
    return settings


def use_threads(threads: int | None) -> None:
    """Compute with so many threads; raises `ValueError` for less than one. None leaves torch's default."""
    if threads is None:
        return
    if threads < 1:
        raise ValueError(f"--threads must be at least 1, not {threads}")
    torch.set_num_threads(threads)


def start_run(recipe: Recipe, run: RunDirectory, data_dir: Path) -> None:
    """Make a run directory: the recipe, and the files that its task prepares from the training data.

    An earlier run in the directory is removed, but only once these files are prepared.
    """
    files = TASKS[recipe.task].prepare(recipe, run, data_dir)
    splits = data_of(recipe, data_dir)
    run.clear()
    run.start(recipe)
    run.write_data([TrainedData(splits=splits)])
    for path, write in files.items():
        write(path)


def open_task(recipe: Recipe, run: RunDirectory, data_dir: Path, device: torch.device) -> Task[Any]:
    """Return the task of a recipe with fresh parameters and the files of its run directory."""
    return TASKS[recipe.task].open(recipe, run, data_dir, device)


def load_trained(
    run: RunDirectory, data_dir: Path = Path("data"), device: str = "auto", overrides: Sequence[str] = ()
) -> Task[Any]:
    """Return the task of a run with its best checkpoint, dropout off, no gradients; it reads data only for batches.

    Raises `FileNotFoundError` where there is no run, or one that has not ended an epoch, and the errors of
    `load_recipe` for overrides.
    """
    recipe = run.recipe(overrides)
    if not run.best.is_file():
        raise FileNotFoundError(f"{run.path} has no best.pt: its first epoch is not over")
    task = open_task(recipe, run, data_dir, choose_device(device))
    task.model.load_state_dict(checkpoint.load(run.best, task.device)["model"])
    task.model.eval().requires_grad_(False)
    return task


def load_offering(run: RunDirectory, operation: str, data_dir: Path = Path("data"), device: str = "auto") -> Any:
    """Load a run as `load_trained` does; raises `ValueError` if bundles of its task do not offer an operation."""
    task = load_trained(run, data_dir, device)
    name = task.recipe.task
    if operation not in MODELS[name].offers:
        raise ValueError(f"{run.path} is a run of task {name!r}, which does not offer the operation {operation!r}")
    return task
