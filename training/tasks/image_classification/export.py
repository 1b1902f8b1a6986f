"""Export of image classifiers: graph, manifest section, verification, measurement, model card.

Shapes: `B` images, `S` height and width.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from models.backend import Backend
from models.bundle.manifest import BundleManifest
from models.tasks.image_classification import ImageClassifierConfig
from training.bundling.folding import FoldedSoftmax
from training.bundling.model_card import Card
from training.bundling.topk import top_k
from training.networks.image_classifier import ImageClassifier
from training.tasks.classification import label_file
from training.tasks.classification_export import LABELS, ClassifierExport
from training.tasks.image_classification.reading import image_source
from training.tasks.image_classification.task import ImageClassificationTask

__all__ = ["ClassifyImageGraph", "ImageClassificationExport"]

_BATCHES = (1, 2, 5)
"""Batch sizes to compare at; none is the one that was traced (3)."""


class ClassifyImageGraph(nn.Module):
    """Computes the most probable classes of each image."""

    def __init__(self, model: ImageClassifier) -> None:
        super().__init__()
        self.model = model
        self.output_layer = FoldedSoftmax(model.output_layer)

    def forward(self, images: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """images `[B, S, S, 3]`, uint8, k `[]` -> log-probabilities and numbers of the k best classes, `[B, k]`."""
        return top_k(self.output_layer.log_prob(self.model(images)), k)


class ImageClassificationExport(ClassifierExport):
    """Export of an image classifier."""

    inputs = "image"
    task: ImageClassificationTask
    quantization = None

    def __init__(self, task: ImageClassificationTask) -> None:
        self.check(task.recipe)
        self.task, self.labels = task, task.labels
        self._size = image_source(task.recipe.data, task.recipe.export.max_pixels).image_size
        inputs = {"images": ("uint8", ("batch", self._size, self._size, 3))}
        self.add_graph(ClassifyImageGraph(task.model), inputs, (self._example(3, seed=0),))

    def _example(self, batch_size: int, *, seed: int) -> Tensor:
        shape = (batch_size, self._size, self._size, 3)
        return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {LABELS: label_file(self.labels)}

    def config(self) -> Mapping[str, object]:
        recipe, encoder = self.task.recipe, self.task.model.encoder
        return {
            "network": {
                "kind": recipe.network.encoder,
                "hidden_size": encoder.hidden_size,
                "image_size": self._size,
            },
            "classes": {"file": LABELS, "count": len(self.labels)},
            "limits": {"max_pixels": recipe.export.max_pixels},
        }

    def largest_difference(self, backend: Backend) -> float:
        return self.worst(backend, [(self._example(size, seed=10 + size),) for size in _BATCHES])

    @classmethod
    def card(cls, manifest: BundleManifest[ImageClassifierConfig]) -> Card:
        network, size = manifest.config.network, manifest.config.network.image_size
        description = f"{network.kind}, {network.hidden_size} hidden units, images brought to {size} x {size}"
        return cls.card_of(manifest, description, "", f"{manifest.config.limits.max_pixels} pixels")
