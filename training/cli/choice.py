"""Values for the fields of a recipe that are `auto`."""

import functools
import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from training.recipe import Recipe
from training.recipe.own.automatic import chosen_values
from training.run.directory import RunDirectory

__all__ = ["Choice"]


class Choice:
    """Chooses what fits the data, or what the run of the recipe's name began with; for `load_recipe`."""

    def __init__(self, data_dir: Path, runs: Path | None = None) -> None:
        """`runs` is the parent of the run's directory; without it runs are left aside."""
        self._data_dir, self._runs = data_dir, runs
        self._reasons: dict[str, str] = {}

    def __call__(self, content: Mapping[str, Any], fields: list[str]) -> Mapping[str, Any]:
        """Return a recipe with values for these fields of a file; raises as `chosen_values` does."""
        if self._runs is not None and (run := RunDirectory(self._runs / str(content.get("name")))).started:
            values, reasons = run.recipe().model_dump(), dict.fromkeys(fields, f"as {run.path} began")
        else:
            values, reasons = chosen_values(content, self._data_dir)
        self._reasons = {field: reasons.get(field, "") for field in fields}
        return values

    def lines(self, recipe: Recipe) -> Iterator[str]:
        """Yield a line for each field of the recipe that was `auto`."""
        content = recipe.model_dump()
        for field, reason in self._reasons.items():
            value = functools.reduce(operator.getitem, field.split("."), content)
            yield f"auto: {field} = {value}{f': {reason}' if reason else ''}"
