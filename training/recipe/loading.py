"""Read recipes: the class of a recipe is that which its task registers."""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from models.registry import UnknownNameError
from training.recipe.automatic import automatic_fields
from training.recipe.dotted_path import copy_at
from training.recipe.overrides import apply_overrides
from training.recipe.recipe import Recipe, RecipeError
from training.tasks.registry import TASKS

__all__ = ["Choose", "load_recipe", "parse_recipe"]


class _Tagged(BaseModel):
    """A recipe as far as its class can be found by it; other fields are checked by that class."""

    task: str


def parse_recipe(content: object) -> Recipe:
    """Return the recipe of a mapping, of the class that its task registers.

    Raises pydantic's `ValidationError`, which names every wrong field, or the known tasks where the task is unknown.
    """
    task = _Tagged.model_validate(content).task
    try:
        recipe_type = TASKS[task].recipe_type
    except UnknownNameError as error:
        reason = PydanticCustomError("unknown_task", "{reason}", {"reason": str(error)})
        details = [InitErrorDetails(type=reason, loc=("task",), input=task)]
        raise ValidationError.from_exception_data("Recipe", details) from error
    return recipe_type.model_validate(content)


Choose = Callable[[dict[str, Any], list[str]], Mapping[str, Any]]
"""Returns a recipe that has values for some fields of a recipe's file, which are `auto` there."""


def load_recipe(path: Path, overrides: Sequence[str] = (), choose: Choose | None = None) -> Recipe:
    """Read and check a recipe; `overrides` such as `loop.epochs=3` set fields other than those of the file.

    Fields that are `auto` get the values of the recipe that `choose` returns; without it they are errors. Raises
    `RecipeError` naming every wrong field, `ValueError` for an override of no field, `FileNotFoundError` where there is
    no file.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not YAML: {error}") from error
    except IsADirectoryError as error:
        raise RecipeError(f"{path} is a directory, not a recipe") from error
    recipe = _checked(_complete(content, choose), str(path))
    if not overrides:
        return recipe
    apply_overrides(content, recipe.model_dump(), overrides)
    return _checked(_complete(content, choose), " --set ".join([str(path), *overrides]))


def _complete(content: object, choose: Choose | None) -> object:
    """Return the content with values for fields that are `auto`; raises `RecipeError` where there is none for one."""
    if choose is None or not isinstance(content, dict) or not (fields := automatic_fields(content)):
        return content
    complete, chosen = copy.deepcopy(content), choose(content, fields)
    for path in fields:
        try:
            copy_at(complete, chosen, path)
        except (KeyError, TypeError) as error:
            raise RecipeError(f"{path}: auto: for these data no value is chosen; leave the field out") from error
    return complete


def _checked(content: object, name: str) -> Recipe:
    try:
        return parse_recipe(content)
    except ValidationError as error:
        wrong = [f"  {'.'.join(map(str, e['loc'])) or 'recipe'}: {e['msg']}" for e in error.errors()]
        raise RecipeError(f"{name} is not a valid recipe:\n" + "\n".join(wrong)) from error
