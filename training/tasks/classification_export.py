"""Export of classifiers, of any input.

Shapes: `B` examples, `C` classes, `N` examples of a split.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from models.backend import Backend
from models.bundle.manifest import BundleManifest, Graph
from models.tasks.labels import ClassesConfig
from models.tasks.zero_shot import NORMALIZERS
from training.bundling.graphs import ExportGraph, Tensors, contract
from training.bundling.model_card import Card
from training.bundling.task_export import TaskExport
from training.bundling.verify import ExportError, both_outputs
from training.tasks.calibrated_classes import CalibratedClasses, calibration_section, quality_columns
from training.tasks.classification import ClassifierRecipe

__all__ = ["LABELS", "ClassifierExport", "classify_contract", "largest_difference"]

LABELS = "labels.txt"
"""File of a bundle."""


class ClassifierExport(TaskExport):
    """Export of a classifier: the graph `classify`, which returns the k best classes of each example."""

    torchscript = "classifier.pt"
    quantization: ClassVar[str | None] = "int8-static"
    point = 0.01
    inputs: ClassVar[str]
    """The noun for an input, such as `text`."""
    labels: Sequence[str]
    task: Any
    """The `ClassificationTask`."""

    def add_graph(
        self, module: nn.Module, inputs: Tensors, examples: Sequence[Tensor], *, normalizers: bool = False
    ) -> None:
        """Set `graphs` to the graph of a module that reads `inputs` and k, and may return `normalizers`."""
        graph = classify_contract(inputs, normalizers=normalizers)
        self.graphs = {"classify": ExportGraph(module.eval(), graph, (*examples, torch.tensor(2)))}

    def worst(self, backend: Backend, examples: Sequence[Sequence[Tensor]]) -> float:
        """Return the largest difference of probabilities over examples of inputs and all classes."""
        return largest_difference(backend, self.graphs["classify"], examples, len(self.labels))

    def calibrated(self, model: Any, data_dir: Path) -> Mapping[str, object]:
        recipe = self.task.recipe
        examples = self.task.calibration_examples(model, recipe, data_dir)
        if examples is None:
            return {}
        found = CalibratedClasses.of(examples, len(model.labels))
        self.calibration_files = found.files
        outside = self.task.outside_examples(model, recipe, data_dir)
        scores = self.task.scope_scores(model, recipe, data_dir)
        return {"classes": found.section(model.config.classes, outside, scores=scores)}

    @staticmethod
    def check(recipe: ClassifierRecipe) -> None:
        """Raise `ExportError` for corpora of other classes."""
        if recipe.export.also_test_on:
            raise ExportError("export.also_test_on: other corpora have other classes")

    @classmethod
    def card_of(cls, manifest: BundleManifest[ClassesConfig], network: str, outputs: str, limit: str) -> Card:
        """Return the card; `outputs` are lines about inputs, `limit` is the largest input."""
        classes, what = manifest.config.classes, cls.inputs
        unlisted = "" if classes.unlisted is None else f", `{classes.unlisted}` for {what}s of none included"
        quality = (
            "Shares, 0 to 1. The calibration error is the expected one in 15 bins (Guo et al. 2017); out-of-scope AUROC"
            " says how well the largest probability tells texts of a class from texts of none."
        )
        limits = f"It knows no class but its own: every {what} is given one\nof them."
        if classes.out_of_scope is not None:
            quality += (
                f" Out of scope is a text whose best class has {classes.out_of_scope.described()}: detected and"
                " rejected are the fractions of texts of no class and of a class that are. The threshold was chosen on"
                " the validation split."
            )
            limits = f"Every {what} is given some of\nits classes: see `out_of_scope` in the answer."
        if classes.threshold is not None:
            quality += f" Predicted are the best class and those of probability {classes.threshold:g} and more."
        return Card(
            unit="classes",
            network=network,
            outputs=f"Classes: {classes.count}, in `{classes.file}`{unlisted}{outputs}",
            limits=f"Each {what} may have up to {limit}. {limits} It repeats the biases of what it was trained on.",
            quality=quality,
            columns=quality_columns(manifest),
            digits=4,
            calibration=calibration_section(manifest),
        )


def classify_contract(inputs: Tensors, *, normalizers: bool = False) -> Graph:
    """Return the contract of `classify`: its inputs and `k` in, the k best classes of each example out.

    With `normalizers` there is a third output: the score of any class before the softmax less its log-probability.
    """
    return contract(
        {**inputs, "k": ("int64", ())},
        {
            "log_probabilities": ("float32", ("batch", "k")),
            "classes": ("int64", ("batch", "k")),
            **({NORMALIZERS: ("float32", ("batch",))} if normalizers else {}),
        },
    )


@torch.no_grad()
def largest_difference(
    backend: Backend, graph: ExportGraph, examples: Sequence[Sequence[Tensor]], num_classes: int
) -> float:
    """Return the largest difference of a backend's probabilities from the module's, over examples, class by class."""
    worst, count = 0.0, torch.tensor(num_classes)
    for inputs in examples:
        tables = [
            np.exp(np.take_along_axis(outputs["log_probabilities"], outputs["classes"].argsort(1), 1))
            for outputs in both_outputs(backend, "classify", graph, (*inputs, count))
        ]
        worst = float(np.maximum(worst, np.abs(tables[0] - tables[1]).max()))
    return worst
