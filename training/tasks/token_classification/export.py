"""Export of token classifiers: graph, manifest section, verification, int8 weights, model card.

Shapes: `B` texts, `T` tokens, `C` tags.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor

from models.backend import Backend
from models.bundle.manifest import BundleManifest
from models.tasks.text_encoder import BertNetwork
from models.tasks.token_classification import TaggerConfig
from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph, contract, random_sequences
from training.bundling.model_card import Card
from training.bundling.task_export import TOKENIZER, TaskExport, vocabulary_section
from training.bundling.verify import ExportError, both_outputs
from training.networks.token_classifier import TokenClassifier
from training.tasks.classification import label_file
from training.tasks.classification_export import LABELS
from training.tasks.encoder_graph import EncoderGraph, encoder_name, encoder_section, quantized_on_texts
from training.tasks.token_classification.reading import read_tagged
from training.tasks.token_classification.task import TokenClassificationTask

__all__ = ["TagGraph", "TokenClassificationExport"]

_SHAPES = ((1, 3), (2, 40), (5, 11))
"""Batch sizes and lengths to compare at; none is the one that was traced (3, 7)."""


class TagGraph(EncoderGraph):
    """Computes the log-probabilities of all tags for each token."""

    def __init__(self, model: TokenClassifier) -> None:
        super().__init__(model.encoder)
        self.output_layer = FoldedSoftmax(model.output_layer)

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor]:
        """tokens `[B, T]`, lengths `[B]` -> log-probabilities `[B, T, C]`, without meaning after a text's length."""
        hidden = self.hidden_states(tokens, lengths)
        return (self.output_layer.log_prob(hidden.flatten(0, 1)).unflatten(0, tokens.shape),)


class TokenClassificationExport(TaskExport):
    """Export of a token classifier: the graph `tag`."""

    torchscript = "tagger.pt"
    quantization = "int8-static"
    point = 0.01

    def __init__(self, task: TokenClassificationTask) -> None:
        if task.recipe.export.also_test_on:
            raise ExportError("export.also_test_on: other corpora have other tags")
        self.task = task
        graph = contract(
            {"tokens": ("int64", ("batch", "steps")), "lengths": ("int64", ("batch",))},
            {"log_probabilities": ("float32", ("batch", "steps", len(task.labels)))},
        )
        module = TagGraph(task.model).eval()
        self.graphs = {"tag": ExportGraph(module, graph, self._example(3, 7, seed=0))}

    def _example(self, batch_size: int, length: int, *, seed: int) -> tuple[Tensor, Tensor]:
        """Return random tokens `[B, T]` and lengths `[B]`, of which the first is T."""
        generator = torch.Generator().manual_seed(seed)
        return random_sequences(self.task.tokenizer.vocab_size, batch_size, length, generator)

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.task.tokenizer.save, LABELS: label_file(self.task.labels)}

    def config(self) -> Mapping[str, object]:
        task = self.task
        return {
            "network": encoder_section(task.encoder),
            "labels": {"file": LABELS, "count": len(task.labels)},
            **vocabulary_section(task.tokenizer),
            "limits": {"max_tokens": min(task.recipe.export.max_tokens, task.recipe.data.max_tokens)},
        }

    @torch.no_grad()
    def largest_difference(self, backend: Backend) -> float:
        """Return the largest difference of a probability of any tag of a token."""
        worst, positions = 0.0, self.task.encoder.positions
        for seed, (batch_size, length) in enumerate(_SHAPES):
            tokens, lengths = self._example(batch_size, min(length, positions), seed=10 + seed)
            both = both_outputs(backend, "tag", self.graphs["tag"], (tokens, lengths))
            inside = np.arange(tokens.shape[1]) < lengths.numpy()[:, None]
            expected, got = (np.exp(outputs["log_probabilities"][inside]) for outputs in both)
            worst = float(np.maximum(worst, np.abs(expected - got).max()))
        return worst

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        """Return graphs with int8 products, by the ranges of activations on training sentences."""
        task, data = self.task, self.task.recipe.data
        texts = [each.text for each in read_tagged(data, "train", task.data_dir)]
        return quantized_on_texts(models, "tag", texts, task.tokenizer, data.max_tokens, {})

    @classmethod
    def card(cls, manifest: BundleManifest[TaggerConfig]) -> Card:
        config, network = manifest.config, manifest.config.network
        assert isinstance(network, BertNetwork), "cards of imported models are written by training.importing"
        sizes = network.model_dump(include={"kind", "layers", "hidden_size", "heads", "inner_size"})
        return Card(
            network=f"{encoder_name(**sizes)}; a tag for each token",
            outputs=f"Tags: {config.labels.count}, in `{LABELS}`\n* Vocabulary: {config.vocab_size} word pieces",
            limits=f"Each text, or each window of a longer one, may have up to {config.limits.max_tokens} word pieces. "
            "Words were\ntagged by their first token in training, so that the aggregation `first` fits best. It knows "
            "no tag but its own, and\nrepeats the biases of what it was trained on.",
            quality="Fractions in [0, 1]. Precision, recall and F1 are of entities, whose type and words must all be "
            "right, over all\ntypes, as seqeval computes them by default; token accuracy is that of words.",
            unit="tags",
            digits=4,
        )
