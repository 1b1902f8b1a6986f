"""What imported models of one number share: rerankers (cross-encoders), and regression.

Shapes: `B` texts.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from models.bundle.manifest import Graph
from models.tasks.text_regression import Regressor, RegressQuery
from models.text.encoding import EncodedText
from training.bundling.graphs import contract
from training.bundling.model_card import Card
from training.importing.encoder import TextReader, calibration_batches, correlation, encoder_tensors, quantized
from training.importing.importer import Agreement, Importer
from training.importing.samples import sample_pairs
from training.importing.tokenizers import TOKENIZER

__all__ = ["RegressorImporter", "score_activation"]


class RegressorImporter(Importer):
    """The import of a model that gives a text, or a pair of texts, a number; constructors set the attributes."""

    task = "text-regression"
    compared, quantity = "a number", "a number"
    encoder: TextReader
    activation: str
    """What scores of a query are made of the numbers by: `sigmoid` or `none`."""

    @property
    def contract(self) -> Graph:
        """The contract of the graph."""
        return contract(encoder_tensors(self.encoder.pairs), {"values": ("float32", ("batch",))})

    @abc.abstractmethod
    def reference_number(self, text: EncodedText) -> float:
        """Return the number of a text, or of a pair."""

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.encoder.tokenizer.save}

    def config(self) -> Mapping[str, object]:
        encoder = self.encoder
        return {
            "network": encoder.network,
            "tokenizer": TOKENIZER,
            "vocab_size": encoder.tokenizer.vocab_size,
            "special_tokens": encoder.special.model_dump(),
            "limits": {"max_tokens": encoder.max_tokens},
            "pairs": None if encoder.pairs is None else encoder.pairs.model_dump(),
            "activation": self.activation,
        }

    def softmax(self) -> None:
        """One number needs no output layer over classes."""
        return

    def largest_difference(self, model: Regressor, bundle: Path, texts: Sequence[str]) -> float:
        del bundle
        queries = _queries(model, texts)
        expected = np.array([self.reference_number(query.encoded) for query in queries])
        together = [each.value for each in model.run(queries)]
        alone = [model.run([query])[0].value for query in queries]
        return float(np.abs(np.array([together, alone]) - expected).max())

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Regressor, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        batches = calibration_batches(_queries(model, texts), self.encoder.pairs)
        return quantized(models, "regress", batches, "values")

    def agreement(self, float32: Regressor, lossy: Regressor, texts: Sequence[str]) -> Agreement:
        one, other = (
            np.array([each.value for each in model.run(_queries(model, texts))]) for model in (float32, lossy)
        )
        return Agreement(
            metric="correlation with float32",
            value=correlation(one, other),
            difference=float(np.abs(one - other).max()),
        )

    def card(self) -> Card:
        encoder = self.encoder
        read = "a text, or a pair of texts" if encoder.pairs is not None else "a text"
        return Card(
            network=encoder.network_line,
            outputs=f"A number for {read}; scores for a query are "
            f"{'its sigmoid' if self.activation == 'sigmoid' else 'the number itself'}\n"
            f"* Vocabulary: {encoder.tokenizer.vocab_size} tokens",
            limits=f"Each text or pair may have up to {encoder.max_tokens} tokens. It repeats the biases of its "
            "training data.",
        )


def _queries(model: Regressor, texts: Sequence[str]) -> list[RegressQuery]:
    """Return queries of the texts, and of pairs where the model reads pairs."""
    pairs = [] if model.config.pairs is None else model.pair_queries(sample_pairs(texts), truncate=True)
    return [*model.queries(texts, truncate=True), *pairs]


def score_activation(config: Mapping[str, Any]) -> str:
    """Return what sentence-transformers applies to the number of a cross-encoder."""
    stated = config.get("sentence_transformers")
    name = stated.get("activation_fn") if isinstance(stated, dict) else None
    name = name or config.get("sbert_ce_default_activation_function")
    if name is None:
        return "none" if config.get("problem_type") == "regression" else "sigmoid"
    return "sigmoid" if str(name).endswith("Sigmoid") else "none"
