"""Fields of a recipe with the value `auto`, which get what `softserve-train new` would choose for the same files."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from training.data.inspection import inspect_file
from training.recipe.own.document import Wishes
from training.recipe.recipe import RecipeError
from training.tasks.registry import TASKS

__all__ = ["automatic_fields", "chosen_values"]

_AUTO = "auto"
_OWN_MEANING = frozenset({"loop.precision"})
"""Fields for which `auto` is a value of the recipe itself."""


def automatic_fields(content: object) -> list[str]:
    """Return the dotted paths of the fields of a recipe's file that have the value `auto`."""
    return [path for path, value in _fields(content) if value == _AUTO and path not in _OWN_MEANING]


def chosen_values(content: Mapping[str, Any], data_dir: Path) -> tuple[dict[str, Any], dict[str, str]]:
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
        languages=(source, target) if source and target and _AUTO not in (source, target) else None,
        from_scratch=not (content.get("initial") or _section(content, "network").get("pretrained")),
        data_dir=data_dir,
        epochs=epochs if isinstance(epochs, int) else None,
    )
    plan = task.plan([inspect_file(data_dir / path) for path in paths], wishes)
    return plan.content, plan.reasons


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = content.get(name)
    return section if isinstance(section, Mapping) else {}


def _fields(content: object, path: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(content, Mapping):
        yield path, content
        return
    for key, value in content.items():
        yield from _fields(value, f"{path}.{key}" if path else str(key))
