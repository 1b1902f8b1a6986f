"""What the export of a classifier does differently from that of other tasks.

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
from models.classifier import Classifier
from models.manifest import Manifest
from models.store import Model
from models.texts import padded
from training.data.labelled_texts import label_ids, out_of_scope_texts, read_labelled
from training.export.attention import joined_projections
from training.export.calibration import RangeRecorder
from training.export.folding import FoldedSoftmax
from training.export.graphs import ExportGraph, contract
from training.export.operators import attend
from training.export.quantize import quantize_int8_static
from training.export.topk import top_k
from training.export.verify import ExportError
from training.networks.text_classifier import TextClassifier, pooled
from training.networks.transformer import EncoderLayer
from training.recipe import AnyRecipe, ClassificationRecipe
from training.tasks.classification import ClassificationTask
from training.tasks.classification_quality import measured

__all__ = ["LABELS", "ClassificationExport", "ClassifyGraph", "bundle_quality"]

LABELS = "labels.txt"
"""File of a bundle."""

_CALIBRATION_TEXTS = 512
_CALIBRATION_BATCH = 32
_SHAPES = ((1, 3), (2, 40), (5, 11))
"""Batch sizes and lengths to compare at; none is what was traced (3, 7)."""


class ClassifyGraph(nn.Module):
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


class ClassificationExport:
    """Graph, manifest fields and quality of a classifier."""

    torchscript = "classifier.pt"
    quantization = "int8-static"

    def __init__(self, task: ClassificationTask) -> None:
        """Raises `ExportError` for a model whose distribution is not that of its output layer."""
        if task.recipe.loss != "softmax":
            raise ExportError(f"a model with loss {task.recipe.loss} is there for comparison and cannot be exported")
        self.task = task
        graph = contract(
            {"tokens": ("int64", ("batch", "steps")), "lengths": ("int64", ("batch",)), "k": ("int64", ())},
            {"log_probabilities": ("float32", ("batch", "k")), "classes": ("int64", ("batch", "k"))},
        )
        examples = (*self._example(3, 7, seed=0), torch.tensor(2))
        self.graphs: Mapping[str, ExportGraph] = {
            "classify": ExportGraph(ClassifyGraph(task.model).eval(), graph, examples)
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
        return {LABELS: "".join(f"{label}\n" for label in self.task.classes.labels)}

    def description(self) -> Mapping[str, object]:
        config, labels = self.task.classes.encoder, self.task.classes.labels
        if self.task.recipe.data.multi_label and self._threshold is None:
            found = self.task.evaluate(self.task.batches("dev"))
            self._threshold = found.threshold
        sizes = config.model_dump(include={"hidden_size", "inner_size", "heads", "layers", "positions"})
        return {
            "network": {"kind": "bert", **sizes, "pooling": self.task.recipe.network.pooling},
            "classes": {"file": LABELS, "count": len(labels), "threshold": self._threshold},
            "limits": {"max_tokens": min(self.task.recipe.export.max_tokens, config.positions)},
        }

    @torch.no_grad()
    def largest_difference(self, backend: Backend, manifest: Manifest) -> float:
        """Over several shapes and all classes, class by class."""
        del manifest
        graph, count = self.graphs["classify"], torch.tensor(len(self.task.classes.labels))
        worst = 0.0
        for seed, (batch_size, length) in enumerate(_SHAPES):
            length = min(length, self.task.classes.encoder.positions)
            tokens, lengths = self._example(batch_size, length, seed=10 + seed)
            expected, classes = (part.numpy() for part in graph.module(tokens, lengths, count))
            feed = {"tokens": tokens.numpy(), "lengths": lengths.numpy(), "k": count.numpy()}
            got, numbers = backend.run("classify", feed, ["log_probabilities", "classes"])
            difference = np.abs(
                np.exp(np.take_along_axis(got, numbers.argsort(1), 1))
                - np.exp(np.take_along_axis(expected, classes.argsort(1), 1))
            )
            worst = float(np.maximum(worst, difference.max()))
        return worst

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
        if corpus is not None:
            raise ExportError("export.also_test_on: other corpora have other classes")
        return bundle_quality(model, self.task.recipe, split, self.task.data_dir)


def bundle_quality(model: Classifier, recipe: AnyRecipe, split: str, data_dir: Path) -> dict[str, float]:
    """Metrics of a loaded bundle, through the same code that serves it."""
    assert isinstance(recipe, ClassificationRecipe)
    assert model.manifest.classes is not None
    texts = read_labelled(recipe.data, split, data_dir)
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
    """`[N, C]`"""
    places = {label: index for index, label in enumerate(model.labels)}
    found = np.zeros((len(texts), len(places)))
    for row, result in enumerate(model.classify(texts, len(places), truncate=True)):
        for each in result.labels:
            found[row, places[each.label]] = each.probability
    return found
