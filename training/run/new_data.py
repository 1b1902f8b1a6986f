"""Changes of a run's data: what changed since it was prepared, and runs that continue with the new data."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import get_args

import torch

from training.data.identity import SplitIdentity, described_changes, new_classes
from training.data.settings import Split
from training.recipe import Recipe
from training.run import checkpoint
from training.run.directory import RunDirectory, TrainedData
from training.run.resumption import check_continues_with_new_data
from training.tasks.registry import TASKS

__all__ = ["changed_data", "continue_with_new_data", "data_of", "described_change"]

_OF_TRAINING = (
    "last.pt",
    "best.pt",
    "best.safetensors",
    "initial.pt",
    "history.json",
    "baselines.json",
    "events.out.tfevents*",
)
"""Files of a run directory that a run on new data makes anew."""


def data_of(recipe: Recipe, data_dir: Path, splits: Iterable[str] = get_args(Split)) -> dict[str, SplitIdentity]:
    """Return the identity of each split that can be read and whose records the task tells."""
    found = {}
    for split in splits:
        try:
            records = TASKS[recipe.task].records(recipe, split, data_dir)
            if records is not None:
                found[split] = SplitIdentity.of(records)
        except (OSError, ValueError):
            continue  # reading the split for training or a measurement raises the error again
    return found


def described_change(run: RunDirectory, recipe: Recipe, now: Mapping[str, SplitIdentity]) -> str:
    """Return what differs between the data now and that of the last session, an empty text where nothing does."""
    versions = run.data()
    names = {split: recipe.data.dataset(split) for split in now}
    return described_changes(versions[-1].splits, now, names) if versions else ""


def changed_data(run: RunDirectory, recipe: Recipe, now: Mapping[str, SplitIdentity]) -> str | None:
    """Return a line that says how the data changed since the last session of a run, None where it did not."""
    if not (versions := run.data()):
        return None
    change = described_change(run, recipe, now)
    if not change:
        return None
    adds = "; `run --continue-with-new-data` adds the classes" if new_classes(versions[-1].splits, now) else ""
    return f"the data has changed since {run.path} was trained: {change}{adds}"


def continue_with_new_data(
    recipe: Recipe,
    run: RunDirectory,
    data_dir: Path,
    splits: Mapping[str, SplitIdentity],
    report: Callable[[str], object],
) -> None:
    """Give a run directory the new data, and the weights of its best evaluation to start from.

    Tokenizers and vocabularies stay; a classifier gets the classes of the new data. The history begins again, since
    metrics on other data cannot be compared. Raises `RecipeError` for other changes of the recipe, and `ValueError`
    where there are no weights, where they do not fit, and for data that cannot be trained on; the directory is as it
    was then.
    """
    from training.bundling.bundle import place  # with the compilers of ONNX

    check_continues_with_new_data(run, recipe)
    source = run.best if run.best.is_file() else run.initial
    if not source.is_file():
        raise ValueError(f"{run.path} has no weights to keep: its first epoch is not over; --restart starts it over")
    task, epochs, change = TASKS[recipe.task], run.trained_epochs(), described_change(run, recipe, splits)
    versions = run.data()
    if versions:
        versions[-1] = TrainedData(splits=versions[-1].splits, epochs=epochs)
    files = task.renewed_files(recipe, run, data_dir)
    with tempfile.TemporaryDirectory(dir=run.path.parent, prefix=f".{run.path.name}-") as temporary:
        new = RunDirectory(Path(temporary) / run.path.name)
        shutil.copytree(run.path, new.path, ignore=shutil.ignore_patterns(*_OF_TRAINING))
        new.write_recipe(recipe)
        new.write_data([*versions, TrainedData(splits=splits)])
        for path, write in files.items():
            write(new.path / path.relative_to(run.path))
        torch.manual_seed(recipe.seed)
        opened = task.open(recipe, new, data_dir, torch.device("cpu"))
        try:
            opened.adopt(checkpoint.load(source, opened.device)["model"], run)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"{run.path} cannot continue with the new data: {error}; --restart starts over") from error
        checkpoint.save(new.initial, {"model": opened.model.state_dict()})
        place(new.path, run.path)
    if change:
        report(f"the data has changed: {change}")
    report(
        f"the weights after {epochs} epochs are kept; optimizer and learning rate start again, for up to "
        f"{recipe.loop.epochs} epochs on the new data"
    )
    if recipe.data.held_out_notes():
        report(
            "splits that are held out of the training file are chosen again: they may have texts that were trained on "
            "before; give files for dev and test to compare two versions"
        )
