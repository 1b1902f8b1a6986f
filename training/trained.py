"""Runs: start a run directory, open its task, load its best checkpoint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from models.tasks.registry import TASKS as MODELS
from training import checkpoint
from training.device import choose_device
from training.recipe import Recipe
from training.run_directory import RunDirectory
from training.tasks.registry import TASKS
from training.tasks.task import Task

__all__ = ["load_offering", "load_trained", "open_task", "start_run"]


def start_run(recipe: Recipe, run: RunDirectory, data_dir: Path) -> None:
    """Make a run directory: the recipe, and the files that its task prepares from the training data.

    An earlier run in the directory is removed, but only once these files are prepared.
    """
    files = TASKS[recipe.task].prepare(recipe, run, data_dir)
    run.clear()
    run.start(recipe)
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
