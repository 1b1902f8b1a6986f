"""Values for the fields of a recipe that are `auto`."""

import functools
import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from training.data.inspection import inspect_file
from training.recipe import Recipe, RecipeError
from training.recipe.own.document import Wishes
from training.run.directory import RunDirectory
from training.tasks.registry import TASKS

__all__ = ["Choice"]


class Choice:
    """Chooses what fits the data, or what the run of the recipe's name began with; for `load_recipe`."""

    def __init__(self, data_dir: Path, runs: Path | None = None) -> None:
        """`runs` is the parent of the run's directory; without it runs are left aside."""
        self._data_dir, self._runs = data_dir, runs
        self._reasons: dict[str, str] = {}

    def __call__(self, content: Mapping[str, Any], fields: list[str]) -> Mapping[str, Any]:
        """Return a recipe with values for these fields of a file.

        Raises the errors of `Task.plan`, and `RecipeError` without own files.
        """
        if self._runs is not None and (run := RunDirectory(self._runs / str(content.get("name")))).started:
            values, reasons = run.recipe().model_dump(), dict.fromkeys(fields, f"as {run.path} began")
        else:
            values, reasons = _chosen_values(content, self._data_dir)
        self._reasons = {field: reasons.get(field, "") for field in fields}
        return values

    def lines(self, recipe: Recipe) -> Iterator[str]:
        """Yield a line for each field of the recipe that was `auto`."""
        content = recipe.model_dump()
        for field, reason in self._reasons.items():
            value = functools.reduce(operator.getitem, field.split("."), content)
            yield f"auto: {field} = {value}{f': {reason}' if reason else ''}"


def _chosen_values(content: Mapping[str, Any], data_dir: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the recipe that is made for the own files of a recipe's file, and the reasons by dotted paths.

    A number of epochs in the file is kept, so that fractions of the training fit it. Raises `RecipeError` for a recipe
    without own files, and the errors of `Task.plan`.
    """
    data, loop = _section(content, "data"), _section(content, "loop")
    files = _section(data, "files")
    task = TASKS[str(content.get("task"))]
    if not files or task.kind is None:
        raise RecipeError("auto: values are chosen by your own files, data.files, and this recipe has none")
    train = files.get("train", "")
    paths = [train["source"], train["target"]] if isinstance(train, Mapping) else [train]
    source, target = data.get("source"), data.get("target")
    epochs = loop.get("epochs")
    wishes = Wishes(
        columns={role: str(name) for role, name in _section(files, "columns").items()},
        languages=(source, target) if source and target and "auto" not in (source, target) else None,
        from_scratch=not (content.get("initial") or _section(content, "network").get("pretrained")),
        data_dir=data_dir,
        epochs=epochs if isinstance(epochs, int) else None,
    )
    plan = task.plan([inspect_file(data_dir / path) for path in paths], wishes)
    return plan.content, plan.reasons


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = content.get(name)
    return section if isinstance(section, Mapping) else {}
