"""Training of text embeddings: the vectors of a classifier whose output layer is a softmax of any kernels.

The metric is the share of texts whose nearest other text (cosine) is of the same class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from models.backend import Backend
from models.bundle.manifest import BundleManifest
from softserve_embedding.model import EmbeddingConfig, EmbeddingModel
from training.bundling.graphs import ExportGraph, contract
from training.bundling.model_card import Card
from training.bundling.quantize import quantize_int8_weights
from training.bundling.task_export import TOKENIZER, TaskExport, vocabulary_section
from training.data.text_batching import TextBatches
from training.networks.text_classifier import TextClassifier
from training.tasks.examples import Measurement
from training.tasks.text_classification import TextClassificationTask
from training.tasks.text_classification.reading import label_ids, read_labelled
from training.tasks.text_classification.settings import ClassificationRecipe

__all__ = ["EmbeddingExport", "EmbeddingRecipe", "EmbeddingTask"]


class EmbeddingRecipe(ClassificationRecipe):
    """The recipe of a text classifier, whose vectors are exported."""

    task: Literal["text-vector"]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class NearestNeighbour:
    """The share of texts whose nearest other text is of the same class."""

    value: float


def nearest(vectors: NDArray[np.float32], classes: Sequence[tuple[int, ...]]) -> NearestNeighbour:
    """Return the metric of unit vectors `[N, d]`."""
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -1.0)
    return NearestNeighbour(float(np.mean([classes[a] == classes[b] for a, b in enumerate(similarity.argmax(1))])))


class EmbedGraph(nn.Module):
    """Computes the unit vector of each text."""

    def __init__(self, model: TextClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor]:
        """tokens `[B, T]`, lengths `[B]` -> `[B, d]`"""
        return (functional.normalize(self.model(tokens, lengths), dim=-1),)


class EmbeddingExport(TaskExport):
    """Export of a text embedding."""

    torchscript = "embedding.pt"
    quantization = "int8-weights"

    def __init__(self, task: "EmbeddingTask") -> None:
        self.task = task
        self._examples = [(torch.full((count, steps), 5), torch.full((count,), steps)) for count, steps in _SHAPES]
        inputs = {"tokens": ("int64", ("batch", "steps")), "lengths": ("int64", ("batch",))}
        graph = contract(inputs, {"embeddings": ("float32", ("batch", task.classes.encoder.hidden_size))})
        self.graphs = {"vector": ExportGraph(EmbedGraph(task.model).eval(), graph, self._examples[0])}

    def config(self) -> Mapping[str, object]:
        limits = {"max_tokens": self.task.recipe.data.max_tokens}
        section = vocabulary_section(self.task.tokenizer)
        return {**section, "dimensions": self.task.classes.encoder.hidden_size, "limits": limits}

    def files(self):  # type: ignore[no-untyped-def]
        return {TOKENIZER: self.task.tokenizer.save}

    @torch.no_grad()
    def largest_difference(self, backend: Backend) -> float:
        worst = 0.0
        for tokens, lengths in self._examples:
            (expected,) = self.graphs["vector"].module(tokens, lengths)
            (found,) = backend.run("vector", {"tokens": tokens.numpy(), "lengths": lengths.numpy()}, ["embeddings"])
            worst = max(worst, float(np.abs(found - expected.numpy()).max()))
        return worst

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        return {name: quantize_int8_weights(model) for name, model in models.items()}

    @classmethod
    def card(cls, manifest: BundleManifest[EmbeddingConfig]) -> Card:
        dimensions, limit = manifest.config.dimensions, manifest.config.limits.max_tokens
        return Card(
            unit="classes",
            network="BERT encoder",
            outputs=f"Vectors of {dimensions} dimensions",
            limits=f"Texts of at most {limit} word pieces.",
            quality="Share of texts whose nearest other text is of the same class.",
            digits=4,
        )


_SHAPES = ((3, 7), (1, 3), (2, 9))


class EmbeddingTask(TextClassificationTask):
    """Learns vectors that are close for texts of one class."""

    recipe_type = EmbeddingRecipe
    exporter = EmbeddingExport
    outputs = "classes"

    @classmethod
    def metric_of(cls, recipe: ClassificationRecipe) -> str:
        return "nearest neighbour"

    def evaluate(self, batches: TextBatches, *, threshold: float | None = None) -> NearestNeighbour:  # type: ignore[override]
        return nearest(*self._vectors(batches))

    @torch.no_grad()
    def _vectors(self, batches: TextBatches) -> tuple[NDArray[np.float32], list[tuple[int, ...]]]:
        self.model.eval()
        rows: dict[int, tuple[Tensor, tuple[int, ...]]] = {}
        for batch in batches.epoch(0):
            vectors = functional.normalize(self.vectors(batch), dim=-1).cpu()
            classes = [tuple(row[row >= 0].tolist()) for row in batch.targets]
            rows |= zip(batch.indices.tolist(), zip(vectors, classes, strict=True), strict=True)
        self.model.train()
        ordered = [rows[index] for index in sorted(rows)]
        return torch.stack([vector for vector, _ in ordered]).numpy(), [each for _, each in ordered]

    def measure(self, split: str) -> Measurement:
        return Measurement({"nearest neighbour": self.evaluate(self.batches_of(split, training=False)).value})

    @classmethod
    def measure_bundle(cls, model: EmbeddingModel, recipe: EmbeddingRecipe, split: str, data_dir):  # type: ignore[no-untyped-def]
        labels = sorted({label for each in read_labelled(recipe.data, "train", data_dir) for label in each.labels})
        texts = read_labelled(recipe.data, split, data_dir)
        vectors = np.stack(model.embed([each.text for each in texts]))
        return {"nearest neighbour": nearest(vectors, label_ids(texts, labels)).value}
