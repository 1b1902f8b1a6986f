"""Export of text classifiers: graph, manifest section, verification, int8 weights, measurement, model card.

Shapes: `B` texts, `T` tokens, `C` classes, `d` hidden size.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor

from models.backend import Backend
from models.bundle.manifest import BundleManifest
from models.tasks.text_classification import ClassifierConfig
from models.tasks.text_encoder import BertNetwork
from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import random_sequences
from training.bundling.model_card import Card
from training.bundling.task_export import TOKENIZER, vocabulary_section
from training.networks.text_classifier import TextClassifier, pooled
from training.tasks.classification import label_file
from training.tasks.classification_export import LABELS, ClassifierExport
from training.tasks.classification_quality import OUT_OF_SCOPE
from training.tasks.encoder_graph import EncoderGraph, encoder_name, encoder_section, quantized_on_texts
from training.tasks.text_classification.reading import read_labelled
from training.tasks.text_classification.task import TextClassificationTask

__all__ = ["ClassifyTextGraph", "TextClassificationExport"]

_SHAPES = ((1, 3), (2, 40), (5, 11))
"""Batch sizes and lengths to compare at; none is the one that was traced (3, 7)."""


class ClassifyTextGraph(EncoderGraph):
    """Computes the most probable classes of each text."""

    def __init__(self, model: TextClassifier) -> None:
        super().__init__(model.encoder)
        self.pooling = model.pooling
        self.output_layer = FoldedSoftmax(model.output_layer)

    def forward(self, tokens: Tensor, lengths: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        """tokens `[B, T]`, lengths `[B]`, k `[]` -> log-probabilities and numbers of the k best classes, `[B, k]`, and
        scores less log-probabilities `[B]`, where the layer has them."""
        vectors = pooled(self.hidden_states(tokens, lengths), lengths, self.pooling)
        if self.output_layer.has_normalizer:
            return self.output_layer.top_k_with_normalizer(vectors, k)
        return self.output_layer.top_k(vectors, k)


class TextClassificationExport(ClassifierExport):
    """Export of a text classifier."""

    inputs = "text"
    task: TextClassificationTask

    def __init__(self, task: TextClassificationTask) -> None:
        self.check(task.recipe)
        self.task, self.labels = task, task.labels
        inputs = {"tokens": ("int64", ("batch", "steps")), "lengths": ("int64", ("batch",))}
        module = ClassifyTextGraph(task.model)
        normalizers = module.output_layer.has_normalizer
        self.add_graph(module, inputs, self._example(3, 7, seed=0), normalizers=normalizers)
        self._threshold: float | None = None

    def _example(self, batch_size: int, length: int, *, seed: int) -> tuple[Tensor, Tensor]:
        """Return random tokens `[B, T]` and lengths `[B]`, of which the first is T."""
        generator = torch.Generator().manual_seed(seed)
        return random_sequences(self.task.tokenizer.vocab_size, batch_size, length, generator)

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.task.tokenizer.save, LABELS: label_file(self.labels)}

    def config(self) -> Mapping[str, object]:
        task, recipe = self.task, self.task.recipe
        if recipe.data.multi_label and self._threshold is None:
            self._threshold = task.evaluate(task.batches("dev")).threshold
        return {
            "network": {**encoder_section(task.classes.encoder), "pooling": recipe.network.pooling},
            "classes": {
                "file": LABELS,
                "count": len(self.labels),
                "threshold": self._threshold,
                "unlisted": OUT_OF_SCOPE if recipe.data.out_of_scope else None,
            },
            **vocabulary_section(task.tokenizer),
            "limits": {"max_tokens": min(recipe.export.max_tokens, recipe.data.max_tokens)},
        }

    def largest_difference(self, backend: Backend) -> float:
        positions = self.task.classes.encoder.positions
        shapes = [(batch_size, min(length, positions)) for batch_size, length in _SHAPES]
        return self.worst(backend, [self._example(*shape, seed=10 + seed) for seed, shape in enumerate(shapes)])

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        """Return graphs with int8 products, by the ranges of activations on training texts."""
        task, data = self.task, self.task.recipe.data
        texts = [each.text for each in read_labelled(data, "train", task.data_dir)]
        return quantized_on_texts(models, "classify", texts, task.tokenizer, data.max_tokens, {"k": np.array(1)})

    @classmethod
    def card(cls, manifest: BundleManifest[ClassifierConfig]) -> Card:
        config, network = manifest.config, manifest.config.network
        assert isinstance(network, BertNetwork), "cards of imported models are written by training.importing"
        encoder = encoder_name(**network.model_dump(include={"kind", "layers", "hidden_size", "heads", "inner_size"}))
        vector = "mean of its tokens' vectors" if network.pooling == "mean" else "vector of [CLS]"
        return cls.card_of(
            manifest,
            f"{encoder}; a text's vector is the {vector}",
            f"\n* Vocabulary: {config.vocab_size} word pieces",
            f"{config.limits.max_tokens} word pieces",
        )
