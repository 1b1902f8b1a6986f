"""Recipes: the YAML files that describe runs, their validation, and overrides of their fields."""

from training.recipe.recipe import LoopSettings, Range, Recipe, RecipeError, TuneSettings, Value, is_number

__all__ = ["LoopSettings", "Range", "Recipe", "RecipeError", "TuneSettings", "Value", "is_number"]
