"""Changes of a recipe with which a run continues: fields without influence on the weights, and a later end."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from training.recipe import LoopSettings, Recipe, RecipeError
from training.recipe.dotted_path import differences
from training.recipe.loading import load_recipe
from training.run.directory import RunDirectory

__all__ = ["check_continues_with_new_data", "continued", "edited_fields"]

_WITH_NEW_DATA = ("data.files", "data.corpus", "data.limit", "data.train_limit", "data.batch_", "loop.", "export.")
"""Beginnings of the fields that may change where a run continues with new data."""

Change = tuple[str, Any, Any]
"""The path of a field, its value in the run and its new value."""


def continued(run: RunDirectory, wanted: Recipe) -> tuple[Recipe, list[str]]:
    """Return the recipe that a run continues with, and lines that say what changes.

    Fields of `export`, `loop.checkpoint_minutes`, `loop.workers`, a higher `loop.patience` and other `loop.epochs` are
    taken over. The learning rate falls over the first number of epochs as before, see `LoopSettings.schedule_epochs`:
    the run is then exactly what the returned recipe trains from the start. Raises `RecipeError` for other changes,
    which it names.
    """
    started = run.recipe()
    recipe = _with_schedule_of(started, wanted)
    changes = list(_changes(started, recipe))
    if not all(_allowed(change, run.trained_epochs()) for change in changes):
        new_data = ", --continue-with-new-data keeps its weights" if _only_of_new_data(changes) else ""
        raise RecipeError(
            f"{run.path} was started with another recipe; --restart starts it over{new_data}\n{_listed(changes)}"
        )
    lines = [f"{run.path}: {_listed([change])}" for change in changes]
    if started.loop.epochs != recipe.loop.epochs and recipe.loop.schedule == "cosine":
        loop = recipe.loop
        lines.append(
            f"the learning rate falls over {_schedule_epochs(loop)} epochs, as the run began, and then stays at "
            f"{loop.learning_rate * loop.final_learning_rate:.2g} (loop.schedule_epochs); "
            f"--restart trains with a decay over all {loop.epochs}"
        )
    return recipe, lines


def check_continues_with_new_data(run: RunDirectory, wanted: Recipe) -> None:
    """Raise `RecipeError` where a recipe changes other fields than those of files, loop and export."""
    changes = list(differences(run.recipe().model_dump(), wanted.model_dump()))
    if kept := [change for change in changes if not change[0].startswith(_WITH_NEW_DATA)]:
        raise RecipeError(
            f"--continue-with-new-data keeps the network of {run.path} and how it reads texts; --restart starts it "
            f"over\n{_listed(kept)}"
        )


def _only_of_new_data(changes: Sequence[Change]) -> bool:
    paths = [path for path, _, _ in changes]
    return any(path.startswith("data.") for path in paths) and all(path.startswith(_WITH_NEW_DATA) for path in paths)


def edited_fields(run: RunDirectory, overrides: Sequence[str] = ()) -> str | None:
    """Return a line that names the fields in which the file of the recipe differs from the run's copy, if any.

    `overrides` are fields that are set in both. None also where the file is gone, or is no recipe any more.
    """
    command = run.command()
    if command is None:
        return None
    path, given = command
    try:
        file = load_recipe(Path(path), [*given, *overrides], lambda content, fields: run.recipe().model_dump())
    except (OSError, ValueError):
        return None
    started = run.recipe(overrides)
    changes = list(_changes(started, _with_schedule_of(started, file.model_copy(update={"tune": None}))))
    if not changes:
        return None
    return (
        f"{path} has changed since `run` and is not used, but the copy in {run.path}: {_listed(changes)}; "
        "`run` takes over fields of export, --set sets them here"
    )


def _schedule_epochs(loop: LoopSettings) -> int:
    return loop.schedule_epochs or loop.epochs


def _with_schedule_of(started: Recipe, wanted: Recipe) -> Recipe:
    """Return the recipe with the decay of the run's, unless it sets another itself."""
    first, loop = started.loop, wanted.loop
    unchanged = first.schedule_epochs is None and first.epochs == loop.epochs
    if loop.schedule != "cosine" or loop.schedule_epochs is not None or unchanged:
        return wanted
    return wanted.model_copy(update={"loop": loop.model_copy(update={"schedule_epochs": _schedule_epochs(first)})})


def _changes(started: Recipe, wanted: Recipe) -> Iterator[Change]:
    same_decay = started.loop.schedule != "cosine" or _schedule_epochs(started.loop) == _schedule_epochs(wanted.loop)
    for change in differences(started.model_dump(), wanted.model_dump()):
        if not (change[0] == "loop.schedule_epochs" and same_decay):
            yield change


def _allowed(change: Change, trained_epochs: int) -> bool:
    path, old, new = change
    match path:
        case "loop.epochs":
            return bool(new >= trained_epochs)
        case "loop.patience":
            return bool(new > old)
        case _:
            return path in ("loop.checkpoint_minutes", "loop.workers") or path.startswith("export.")


def _listed(changes: Sequence[Change]) -> str:
    return "; ".join(f"{path} was {old!r}, is {new!r}" for path, old, new in changes)
