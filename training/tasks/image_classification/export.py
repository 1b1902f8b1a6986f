"""What the export of a classifier of images does differently from that of other tasks.

Shapes: `B` images, `S` height and width.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import onnx
import torch
from PIL import Image
from torch import Tensor, nn

from models.backend import Backend
from models.bundle.manifest import Manifest
from models.tasks.image_classification import ImageClassifier
from models.tasks.model import Model
from training.data.labelled_images import image_source, read_images
from training.export import classification
from training.export.folding import FoldedSoftmax
from training.export.graphs import ExportGraph
from training.export.topk import top_k
from training.export.verify import ExportError
from training.networks.image_classifier import ImageClassifier as ImageClassifierNetwork
from training.recipe import AnyRecipe, ImageClassificationRecipe
from training.tasks.classification_quality import measure_single
from training.tasks.image_classification import ImageClassificationTask

__all__ = ["ClassifyImageGraph", "ImageClassificationExport", "bundle_image_quality"]

_BATCHES = (1, 2, 5)
"""Batch sizes to compare at; none is what was traced (3)."""


class ClassifyImageGraph(nn.Module):
    """The most probable classes of each image."""

    def __init__(self, model: ImageClassifierNetwork) -> None:
        super().__init__()
        self.model = model
        self.output_layer = FoldedSoftmax(model.output_layer)

    def forward(self, images: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """images `[B, S, S, 3]`, uint8, k `[]` -> log-probabilities and numbers of the k best classes, `[B, k]`."""
        return top_k(self.output_layer.log_prob(self.model(images)), k)


class ImageClassificationExport:
    """Graph, manifest fields and quality of a classifier."""

    torchscript = "classifier.pt"
    quantization = "int8-static"
    tokenizer = None

    def __init__(self, task: ImageClassificationTask) -> None:
        """Raises what `check_recipe` raises, and `ExportError` for int8."""
        classification.check_recipe(task.recipe)
        if task.recipe.export.quantization != "none":
            raise ExportError("export.quantization: classifiers of images are exported in float32")
        self.task = task
        self._size = image_source(task.recipe.data, task.recipe.export.max_pixels).image_size
        graph = classification.classify_contract({"images": ("uint8", ("batch", self._size, self._size, 3))})
        examples = (self._example(3, seed=0), torch.tensor(2))
        self.graphs: Mapping[str, ExportGraph] = {
            "classify": ExportGraph(ClassifyImageGraph(task.model).eval(), graph, examples)
        }

    def _example(self, batch_size: int, *, seed: int) -> Tensor:
        shape = (batch_size, self._size, self._size, 3)
        return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))

    def files(self) -> Mapping[str, str]:
        return classification.label_file(self.task.labels)

    def description(self) -> Mapping[str, object]:
        recipe, encoder = self.task.recipe, self.task.model.encoder
        return {
            "network": {
                "kind": recipe.network.encoder,
                "hidden_size": encoder.hidden_size,
                "image_size": self._size,
            },
            "classes": {"file": classification.LABELS, "count": len(self.task.labels)},
            "limits": {"max_pixels": recipe.export.max_pixels},
        }

    def largest_difference(self, backend: Backend, manifest: Manifest) -> float:
        """Over several batch sizes and all classes."""
        del manifest
        examples = [(self._example(size, seed=10 + size),) for size in _BATCHES]
        return classification.largest_difference(backend, self.graphs["classify"], examples, len(self.task.labels))

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        raise AssertionError("refused at the start")

    def measure(self, model: Model, split: str, corpus: str | None = None) -> Mapping[str, float]:
        assert isinstance(model, ImageClassifier)
        assert corpus is None
        return bundle_image_quality(model, self.task.recipe, split, self.task.data_dir)


def bundle_image_quality(model: ImageClassifier, recipe: AnyRecipe, split: str, data_dir: Path) -> dict[str, float]:
    """Metrics of a loaded bundle, through the same code that serves it."""
    assert isinstance(recipe, ImageClassificationRecipe)
    images, labels = read_images(recipe.data, split, data_dir, model.labels, recipe.export.max_pixels)
    found = model.classify([_png(image) for image in images], len(model.labels))
    table = classification.probability_table(model.labels, [result.labels for result in found])
    return measure_single(table, labels.tolist()).named()


def _png(pixels: object) -> bytes:
    """A file as a client would send it."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")  # type: ignore[arg-type]
    return file.getvalue()
