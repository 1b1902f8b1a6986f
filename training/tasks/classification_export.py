"""What the exports of classifiers have in common.

Shapes: `B` examples, `C` classes, `N` examples of a split.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.backend import Backend
from models.tasks.text_classification import Label
from models.bundle.manifest import Graph
from training.export.graphs import ExportGraph, contract
from training.export.verify import ExportError
from training.recipe import ClassificationRecipe, ImageClassificationRecipe

__all__ = ["LABELS", "check_recipe", "classify_contract", "label_file", "largest_difference", "probability_table"]

LABELS = "labels.txt"
"""File of a bundle."""


def check_recipe(recipe: ClassificationRecipe | ImageClassificationRecipe) -> None:
    """Raises `ExportError` for a distribution that is not the output layer's, and for corpora of other classes."""
    if recipe.export.also_test_on:
        raise ExportError("export.also_test_on: other corpora have other classes")
    if recipe.loss != "softmax":
        raise ExportError(f"a model with loss {recipe.loss} is there for comparison and cannot be exported")


def classify_contract(inputs: Mapping[str, tuple[str, tuple[str | int, ...]]]) -> Graph:
    """The graph `classify`: its inputs and `k` in, the k best classes of each example out."""
    return contract(
        {**inputs, "k": ("int64", ())},
        {"log_probabilities": ("float32", ("batch", "k")), "classes": ("int64", ("batch", "k"))},
    )


def label_file(labels: Sequence[str]) -> dict[str, str]:
    """Name and content."""
    return {LABELS: "".join(f"{label}\n" for label in labels)}


@torch.no_grad()
def largest_difference(
    backend: Backend, graph: ExportGraph, examples: Sequence[Sequence[Tensor]], num_classes: int
) -> float:
    """Of a backend's probabilities from the module's, over examples of inputs, class by class."""
    worst, count = 0.0, torch.tensor(num_classes)
    for inputs in examples:
        names = [spec.name for spec in graph.contract.inputs]
        feed = {name: value.numpy() for name, value in zip(names, (*inputs, count), strict=True)}
        expected = [part.numpy() for part in graph.module(*inputs, count)]
        tables = []
        for values, classes in (expected, backend.run("classify", feed, ["log_probabilities", "classes"])):
            tables.append(np.exp(np.take_along_axis(values, classes.argsort(1), 1)))
        worst = float(np.maximum(worst, np.abs(tables[0] - tables[1]).max()))
    return worst


def probability_table(labels: Sequence[str], found: Sequence[Sequence[Label]]) -> NDArray[np.float64]:
    """Probabilities `[N, C]`, 0 where a class was left out."""
    places = {label: index for index, label in enumerate(labels)}
    table = np.zeros((len(found), len(places)))
    for row, some in enumerate(found):
        for each in some:
            table[row, places[each.label]] = each.probability
    return table
