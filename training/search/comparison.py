"""Two models on one test set: the difference of their metric, with an interval over examples, and of each class."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.bundle.manifest import MANIFEST
from models.store import load_bundle
from training.data.identity import Record, SplitIdentity
from training.recipe import Recipe
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.session import load_trained
from training.search.analyses.tables import Rows
from training.search.tables.bootstrap import paired_interval
from training.tasks.examples import Examples
from training.tasks.registry import TASKS

__all__ = ["Measured", "class_rows", "difference", "measured"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A model on a split."""

    name: str
    metric: str
    examples: Examples
    records: list[Record]
    """The records of the split, in the order of the examples; none where the task does not tell them."""


def measured(what: Path, split: str, data_dir: Path, device: str = "auto") -> Measured:
    """Return the examples of a run or bundle on a split of its recipe's data.

    Raises `ValueError` for an imported bundle and for a task without statistics of examples, and the errors of loading
    and reading.
    """
    examples: Examples | None
    if (what / MANIFEST).is_file():
        model = load_bundle(what.resolve())
        if not model.manifest.provenance.recipe:
            raise ValueError(f"{what} was imported: no recipe says what to measure it on")
        recipe = parse_recipe(model.manifest.provenance.recipe)
        examples = TASKS[recipe.task].bundle_examples(model, recipe, split, data_dir)
    else:
        task = load_trained(RunDirectory(what), data_dir, device)
        recipe, examples = task.recipe, task.measure(split).examples
    if examples is None:
        raise ValueError(f"{what}: models of {recipe.task} are not compared by examples")
    metric = TASKS[recipe.task].metric_of(recipe)
    return Measured(name=str(what), metric=metric, examples=examples, records=_records(recipe, split, data_dir))


def _records(recipe: Recipe, split: str, data_dir: Path) -> list[Record]:
    return list(TASKS[recipe.task].records(recipe, split, data_dir) or ())


def difference(first: Measured, second: Measured) -> str:
    """Return a line with both metrics and the second's lead, with its 95 % interval.

    Raises `ValueError` for models of other metrics, or on other records.
    """
    if first.metric != second.metric:
        raise ValueError(f"{first.name} is measured by {first.metric}, {second.name} by {second.metric}")
    same = SplitIdentity.of(first.records).sha256 == SplitIdentity.of(second.records).sha256
    if not same or first.examples.statistics.shape != second.examples.statistics.shape:
        raise ValueError(f"{first.name} and {second.name} were measured on other records: give both the same test file")
    values = [each.examples.value for each in (first, second)]
    found = paired_interval(second.examples, first.examples.statistics)
    interval = "" if found is None else f", 95 % interval over examples [{found.low:+.4f}, {found.high:+.4f}]"
    return (
        f"{first.metric} {values[0]:.4f} of {first.name}, {values[1]:.4f} of {second.name}: "
        f"{values[1] - values[0]:+.4f}{interval}"
    )


def class_rows(first: Measured, second: Measured) -> Rows | None:
    """Return the metric of both models on the examples of each class, largest changes first; None without them."""
    places = defaultdict(list)
    if len(first.records) != len(first.examples.statistics):
        return None
    for place, (labels, _) in enumerate(first.records):
        for label in labels:
            places[label].append(place)
    rows = []
    for label, own in places.items():
        before, after = (
            float(each.examples.metric(each.examples.statistics[own].sum(0, keepdims=True))[0])
            for each in (first, second)
        )
        rows.append((label, len(own), before, after, after - before))
    found = Rows(["class", "examples", "first", "second", "change"])
    for row in sorted(rows, key=lambda row: (-abs(row[-1]) if np.isfinite(row[-1]) else 0, row[0])):
        found.add(row)
    return found if rows else None
