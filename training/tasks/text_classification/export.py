"""What the export of a classifier of texts does differently from that of other tasks.

Shapes: `B` texts, `T` tokens, `C` classes, `d` hidden size.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.backend import Backend
from models.tasks.text_classification import Classifier
from models.bundle.manifest import Manifest
from models.bundle.store import Model
from models.text.limits import padded
from training.data.labelled_texts import known_texts, label_ids, out_of_scope_texts, read_labelled
from training.export import classification
from training.export.attention import joined_projections
from training.export.calibration import RangeRecorder
from training.export.folding import FoldedSoftmax
from training.export.graphs import ExportGraph
from training.export.operators import attend
from training.export.quantize import quantize_int8_static
from training.export.topk import top_k
from training.networks.text_classifier import TextClassifier, pooled
from training.networks.transformer import EncoderLayer
from training.recipe import AnyRecipe, ClassificationRecipe
from training.tasks.classification_quality import measured
from training.tasks.text_classification import TextClassificationTask

__all__ = ["ClassifyTextGraph", "TextClassificationExport", "bundle_quality"]

_CALIBRATION_TEXTS = 512
_CALIBRATION_BATCH = 32
_SHAPES = ((1, 3), (2, 40), (5, 11))
"""Batch sizes and lengths to compare at; none is what was traced (3, 7)."""


class ClassifyTextGraph(nn.Module):
    """The most probable classes of each text."""

    def __init__(self, model: TextClassifier) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.pooling = model.pooling
        self.output_layer = FoldedSoftmax(model.output_layer)
        self.joined = nn.ModuleList(joined_projections(layer.attention) for layer in self._layers())

    def _layers(self) -> list[EncoderLayer]:
        return [layer for layer in self.encoder.layers if isinstance(layer, EncoderLayer)]

    def forward(self, tokens: Tensor, lengths: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """tokens `[B, T]`, lengths `[B]`, k `[]` -> log-probabilities and numbers of the k best classes, `[B, k]`."""
        encoder = self.encoder
        hidden = encoder.norm(encoder.words(tokens) + encoder.positions[: tokens.shape[1]]).flatten(0, 1)
        for joined, layer in zip(self.joined, self._layers(), strict=True):
            query, keys, values = joined(hidden).view(*tokens.shape, -1).chunk(3, dim=-1)
            attended = attend(query, keys, values, lengths, layer.attention.heads).flatten(0, 1)
            hidden = layer.after(0, hidden, layer.attention.output(attended))
            hidden = layer.after(1, hidden, layer.feed_forward(hidden))
        vectors = pooled(hidden.view(*tokens.shape, -1), lengths, self.pooling)
        return top_k(self.output_layer.log_prob(vectors), k)


class TextClassificationExport:
    """Graph, manifest fields and quality of a classifier."""

    torchscript = "classifier.pt"
    quantization = "int8-static"

    def __init__(self, task: TextClassificationTask) -> None:
        """Raises what `check_recipe` raises."""
        classification.check_recipe(task.recipe)
        self.task = task
        self.tokenizer = task.tokenizer
        inputs = {"tokens": ("int64", ("batch", "steps")), "lengths": ("int64", ("batch",))}
        graph = classification.classify_contract(inputs)
        examples = (*self._example(3, 7, seed=0), torch.tensor(2))
        self.graphs: Mapping[str, ExportGraph] = {
            "classify": ExportGraph(ClassifyTextGraph(task.model).eval(), graph, examples)
        }
        self._threshold: float | None = None

    def _example(self, batch_size: int, length: int, *, seed: int) -> tuple[Tensor, Tensor]:
        """Random tokens `[B, T]` and lengths `[B]`, of which the first is T."""
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(self.task.tokenizer.vocab_size, (batch_size, length), generator=generator)
        lengths = torch.randint(1, length + 1, (batch_size,), generator=generator)
        lengths[0] = length
        return tokens, lengths

    def files(self) -> Mapping[str, str]:
        return classification.label_file(self.task.labels)

    def description(self) -> Mapping[str, object]:
        config, labels = self.task.classes.encoder, self.task.labels
        if self.task.recipe.data.multi_label and self._threshold is None:
            found = self.task.evaluate(self.task.batches("dev"))
            self._threshold = found.threshold
        sizes = config.model_dump(include={"hidden_size", "inner_size", "heads", "layers", "positions"})
        return {
            "network": {"kind": "bert", **sizes, "pooling": self.task.recipe.network.pooling},
            "classes": {"file": classification.LABELS, "count": len(labels), "threshold": self._threshold},
            "limits": {"max_tokens": min(self.task.recipe.export.max_tokens, self.task.recipe.data.max_tokens)},
        }

    def largest_difference(self, backend: Backend, manifest: Manifest) -> float:
        """Over several shapes and all classes."""
        del manifest
        positions = self.task.classes.encoder.positions
        shapes = [(batch_size, min(length, positions)) for batch_size, length in _SHAPES]
        examples = [self._example(*shape, seed=10 + seed) for seed, shape in enumerate(shapes)]
        return classification.largest_difference(backend, self.graphs["classify"], examples, len(self.task.labels))

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        """Int8 products, by the ranges that activations have on training texts."""
        task, recorder = self.task, RangeRecorder(models)
        texts = [each.text for each in read_labelled(task.recipe.data, "train", task.data_dir)]
        some = texts[:: -(-len(texts) // _CALIBRATION_TEXTS)]
        encoded = sorted(task.tokenizer.encode_batch(some, task.recipe.data.max_tokens), key=len)
        for first in range(0, len(encoded), _CALIBRATION_BATCH):
            inputs = padded(encoded[first : first + _CALIBRATION_BATCH])
            recorder.run("classify", {**inputs, "k": np.array(1)}, ["log_probabilities"])
        return {name: quantize_int8_static(model, recorder.ranges(name)) for name, model in models.items()}

    def measure(self, model: Model, split: str, corpus: str | None = None) -> Mapping[str, float]:
        assert isinstance(model, Classifier)
        assert corpus is None
        return bundle_quality(model, self.task.recipe, split, self.task.data_dir)


def bundle_quality(model: Classifier, recipe: AnyRecipe, split: str, data_dir: Path) -> dict[str, float]:
    """Metrics of a loaded bundle, through the same code that serves it."""
    assert isinstance(recipe, ClassificationRecipe)
    assert model.manifest.classes is not None
    texts = known_texts(recipe.data, split, data_dir, model.labels)
    outside = out_of_scope_texts(recipe.data, split, data_dir)
    return measured(
        _probabilities(model, [each.text for each in texts]),
        label_ids(texts, model.labels),
        _probabilities(model, outside),
        model.labels,
        several=recipe.data.multi_label,
        threshold=model.manifest.classes.threshold,
    )


def _probabilities(model: Classifier, texts: Sequence[str]) -> NDArray[np.float64]:
    results = model.classify(texts, len(model.labels), truncate=True)
    return classification.probability_table(model.labels, [result.labels for result in results])
