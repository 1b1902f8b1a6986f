"""The data report of a recipe: its splits, as its task reads them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from training.data.csv_files import is_csv
from training.data.report import DataReport, Finding, examined
from training.data.settings import ParallelFiles, Split, SplitFiles
from training.data.text_files import has_lines, read_rows
from training.recipe import Recipe
from training.tasks.registry import TASKS

__all__ = ["examine", "has_report"]

_MOST = 200_000
"""Texts of a split that are looked at."""

_LARGEST = 50_000_000
"""Bytes of a file from which empty lines are not counted: language models train on files larger than memory."""


def has_report(recipe: Recipe) -> bool:
    """Return whether there are reports on the data of a recipe's task."""
    return TASKS[recipe.task].expected(recipe) is not None


def examine(recipe: Recipe, data_dir: Path, *, quick: bool = False, most: int = _MOST) -> DataReport:
    """Return the report on the data of a recipe; at most the first `most` texts of a split are looked at.

    Raises `ValueError` for a task without reports, and the errors of reading the splits.
    """
    task = TASKS[recipe.task]
    if (expected := task.expected(recipe)) is None:
        raise ValueError(f"there is no data report on the task {recipe.task!r}")
    splits = {split: task.texts(recipe, split, data_dir, most) for split in get_args(Split)}
    report = examined(recipe.name, splits, expected, quick=quick)
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
        elif getattr(recipe.data, "separated_by_blank_lines", False) or (given and is_csv(data_dir / given)):
            continue  # in CSV, blank lines may be parts of quoted fields
        elif given is not None and has_lines(data_dir / given) and (data_dir / given).stat().st_size < _LARGEST:
            count = sum(read_rows(data_dir / given, lambda line: not line.strip(), files.encoding))
            message = f"empty lines of {given}, which are left out"
        else:
            continue
        if count:
            yield Finding(kind="left-out", level=level, count=count, message=message)
