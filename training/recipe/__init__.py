"""Recipes: the YAML files that describe runs, their validation, and overrides of their fields."""

import importlib
import warnings
from typing import Any

from training.recipe.recipe import LoopSettings, Range, Recipe, RecipeError, TuneSettings, Value, is_number

__all__ = ["LoopSettings", "Range", "Recipe", "RecipeError", "TuneSettings", "Value", "is_number"]


def __getattr__(name: str) -> Any:
    """Return functions that have moved, until version 0.2."""
    if name not in ("load_recipe", "parse_recipe"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"training.recipe.{name} is now training.recipe.loading.{name}", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module("training.recipe.loading"), name)
