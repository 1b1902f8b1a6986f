"""Trained runs: the best checkpoint of a run directory, ready to be evaluated, analysed or exported."""

from collections.abc import Sequence
from pathlib import Path

import torch

from training import checkpoint
from training.checkpoint import RunDirectory
from training.tasks.language_model import LanguageModelTask
from training.tasks.registry import AnyTask, open_task

__all__ = ["choose_device", "load_language_model", "load_trained"]


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU.

    Raises `ValueError` for a device that torch does not know or that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} is not available: {str(error).splitlines()[0]}") from error
    return device


def load_trained(
    run: RunDirectory, data_dir: Path = Path("data"), device: str = "auto", overrides: Sequence[str] = ()
) -> AnyTask:
    """The task of a run with its best checkpoint, dropout off, no gradients; it reads data only when asked for batches.

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


def load_language_model(run: RunDirectory, data_dir: Path = Path("data"), device: str = "auto") -> LanguageModelTask:
    """As `load_trained`; raises `ValueError` for the run of another task."""
    task = load_trained(run, data_dir, device)
    if not isinstance(task, LanguageModelTask):
        raise ValueError(f"{run.path} is a run of task {task.recipe.task!r}, not of a language model")
    return task
