"""The data report of a recipe: its splits, as its task reads them."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from training.data.report import DataReport, Finding, Texts, examined
from training.data.settings import ParallelFiles, SplitFiles
from training.data.text_files import has_lines, read_rows
from training.recipe import Recipe
from training.tasks.language_model.reading import iterate_texts
from training.tasks.language_model.settings import LanguageModelRecipe
from training.tasks.text_classification.reading import read_labelled
from training.tasks.text_classification.settings import ClassificationRecipe
from training.tasks.text_generation.reading import read_source_targets
from training.tasks.text_generation.settings import GenerationRecipe
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import TranslationRecipe

__all__ = ["examine", "has_report"]

_MOST = 200_000
"""Texts of a split that are looked at."""

_LARGEST = 50_000_000
"""Bytes of a file from which empty lines are not counted: language models train on files larger than memory."""


def has_report(recipe: Recipe) -> bool:
    """Return whether there are reports on the data of a recipe's task."""
    return isinstance(recipe, ClassificationRecipe | GenerationRecipe | TranslationRecipe | LanguageModelRecipe)


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
    report = examined(
        recipe.name,
        splits,
        max_tokens=max_tokens,
        expected=expected,
        languages=languages,
        leakage=leakage,
        aligned=not isinstance(recipe, GenerationRecipe),
    )
    return replace(report, findings=[*report.findings, *_left_out(recipe, data_dir)])


def _left_out(recipe: Recipe, data_dir: Path) -> Iterator[Finding]:
    """Yield findings about lines that reading leaves out: empty ones, and pairs with an empty side."""
    files: SplitFiles | None = getattr(recipe.data, "files", None)
    if files is None:
        return
    for given in (files.train, files.dev, files.test):
        level: Literal["warning", "note"] = "note"
        if isinstance(given, ParallelFiles):
            sides = [read_rows(data_dir / path, str.strip, files.encoding) for path in (given.source, given.target)]
            count, level = sum(not all(pair) for pair in zip(*sides, strict=True)), "warning"
            message = f"lines of {given} with an empty side, which are left out"
        elif given is not None and has_lines(data_dir / given) and (data_dir / given).stat().st_size < _LARGEST:
            count = sum(read_rows(data_dir / given, lambda line: not line.strip(), files.encoding))
            message = f"empty lines of {given}, which are left out"
        else:
            continue
        if count:
            yield Finding(kind="left-out", level=level, count=count, message=message)


def _texts(recipe: Recipe, split: str, data_dir: Path, most: int) -> Texts:
    if isinstance(recipe, ClassificationRecipe):
        labelled = read_labelled(recipe.data, split, data_dir)[:most]
        return Texts(columns={"text": [each.text for each in labelled]}, labels=[each.labels for each in labelled])
    if isinstance(recipe, TranslationRecipe):
        pairs = split_pairs(recipe.data, split, data_dir)[:most]
        return Texts(columns={"source": [source for source, _ in pairs], "target": [target for _, target in pairs]})
    if isinstance(recipe, GenerationRecipe):
        texts = read_source_targets(recipe.data, split, data_dir)[:most]
        rows = [(each.source, target) for each in texts for target in each.targets]
        return Texts(columns={"source": [source for source, _ in rows], "target": [target for _, target in rows]})
    if isinstance(recipe, LanguageModelRecipe):
        return Texts(columns={"text": list(itertools.islice(iterate_texts(recipe.data, split, data_dir), most))})
    raise ValueError(f"there is no data report on the task {recipe.task!r}")
