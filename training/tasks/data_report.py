"""The data report of a recipe: its splits, as its task reads them."""

import itertools
from pathlib import Path

from training.data.report import DataReport, Texts, examined
from training.recipe import Recipe
from training.tasks.language_model.reading import iterate_texts
from training.tasks.language_model.settings import LanguageModelRecipe
from training.tasks.text_classification.reading import read_labelled
from training.tasks.text_classification.settings import ClassificationRecipe
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import TranslationRecipe

__all__ = ["examine", "has_report"]

_MOST = 200_000
"""Texts of a split that are looked at."""


def has_report(recipe: Recipe) -> bool:
    """Return whether there are reports on the data of a recipe's task."""
    return isinstance(recipe, ClassificationRecipe | TranslationRecipe | LanguageModelRecipe)


def examine(recipe: Recipe, data_dir: Path, *, languages: bool = True, most: int = _MOST) -> DataReport:
    """Return the report on the data of a recipe; at most the first `most` texts of a split are looked at.

    Raises `ValueError` for a task without reports, and the errors of reading the splits.
    """
    splits = {split: _texts(recipe, split, data_dir, most) for split in ("train", "dev", "test")}
    max_tokens, expected, leakage = None, {}, True
    if isinstance(recipe, ClassificationRecipe):
        max_tokens = recipe.data.max_tokens
    elif isinstance(recipe, TranslationRecipe):
        max_tokens, expected = recipe.data.max_tokens, {"source": recipe.data.source, "target": recipe.data.target}
    elif isinstance(recipe, LanguageModelRecipe):
        leakage = recipe.data.context == "sentence"
    return examined(recipe.name, splits, max_tokens=max_tokens, expected=expected, languages=languages, leakage=leakage)


def _texts(recipe: Recipe, split: str, data_dir: Path, most: int) -> Texts:
    if isinstance(recipe, ClassificationRecipe):
        labelled = read_labelled(recipe.data, split, data_dir)[:most]
        return Texts(columns={"text": [each.text for each in labelled]}, labels=[each.labels for each in labelled])
    if isinstance(recipe, TranslationRecipe):
        pairs = split_pairs(recipe.data, split, data_dir)[:most]
        return Texts(columns={"source": [source for source, _ in pairs], "target": [target for _, target in pairs]})
    if isinstance(recipe, LanguageModelRecipe):
        return Texts(columns={"text": list(itertools.islice(iterate_texts(recipe.data, split, data_dir), most))})
    raise ValueError(f"there is no data report on the task {recipe.task!r}")
