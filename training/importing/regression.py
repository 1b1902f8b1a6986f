"""Import of models for sequence classification with one number: rerankers (cross-encoders), and regression."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import Tensor, nn

from models.tasks.text_regression import Regressor, RegressQuery
from training.bundling.bundle import BundleGraph
from training.bundling.calibration import RangeRecorder
from training.bundling.graphs import contract
from training.bundling.model_card import Card
from training.bundling.quantize import quantize_int8_static
from training.importing.encoder import Encoder, calibration_batches, encoder_tensors
from training.importing.errors import ImportRefused
from training.importing.importer import REGRESSOR, Agreement, Importer, ImportOptions, register
from training.importing.samples import sample_pairs
from training.importing.source import SourceDirectory
from training.importing.tokenizers import TOKENIZER

__all__ = ["RegressionImporter"]


@register(REGRESSOR)
class RegressionImporter(Importer):
    """The import of a model that gives a text, or a pair of texts, a number."""

    task = "text-regression"
    compared, quantity = "a number", "a number"

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self._encoder = Encoder(source, options)
        if self._encoder.config.num_labels != 1:
            raise ImportRefused("a model of regression with several numbers cannot be imported; one number can be")
        self._activation = _activation(source.config)

    def graphs(self) -> Mapping[str, BundleGraph]:
        graph = contract(encoder_tensors(self._encoder.pairs), {"values": ("float32", ("batch",))})
        return {"regress": self._encoder.graph(_OneNumber(), graph)}

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self._encoder.tokenizer.save}

    def config(self) -> Mapping[str, object]:
        encoder = self._encoder
        return {
            "network": encoder.network,
            "tokenizer": TOKENIZER,
            "vocab_size": encoder.tokenizer.vocab_size,
            "special_tokens": encoder.special.model_dump(),
            "limits": {"max_tokens": encoder.max_tokens},
            "pairs": None if encoder.pairs is None else encoder.pairs.model_dump(),
            "activation": self._activation,
        }

    def softmax(self) -> None:
        """One number needs no output layer over classes."""
        return

    def largest_difference(self, model: Regressor, bundle: Path, texts: Sequence[str]) -> float:
        del bundle
        self._encoder.compare_tokens(self._encoder.tokenizer, texts)
        queries = _queries(model, texts)
        expected = np.array([float(self._encoder.reference(query.encoded).logits[0, 0]) for query in queries])
        together = [each.value for each in model.run(queries)]
        alone = [model.run([query])[0].value for query in queries]
        return float(np.abs(np.array([together, alone]) - expected).max())

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Regressor, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        recorder = RangeRecorder(models)
        for inputs in calibration_batches(_queries(model, texts), self._encoder.pairs):
            recorder.run("regress", inputs, ["values"])
        return {name: quantize_int8_static(each, recorder.ranges(name)) for name, each in models.items()}

    def agreement(self, float32: Regressor, int8: Regressor, texts: Sequence[str]) -> Agreement:
        one, other = (np.array([each.value for each in model.run(_queries(model, texts))]) for model in (float32, int8))
        return Agreement(
            metric="correlation with float32",
            value=float(np.corrcoef(one, other)[0, 1]) if one.std() > 0 and other.std() > 0 else 1.0,
            difference=float(np.abs(one - other).max()),
        )

    def card(self) -> Card:
        encoder = self._encoder
        read = "a text, or a pair of texts" if encoder.pairs is not None else "a text"
        return Card(
            network=encoder.network_line,
            outputs=f"A number for {read}; scores for a query are "
            f"{'its sigmoid' if self._activation == 'sigmoid' else 'the number itself'}\n"
            f"* Vocabulary: {encoder.tokenizer.vocab_size} tokens",
            limits=f"Each text or pair may have up to {encoder.max_tokens} tokens. It repeats the biases of its "
            "training data.",
        )


class _OneNumber(nn.Module):
    def forward(self, output: Any, lengths: Tensor) -> Tensor:
        """Scores `[B, 1]` -> numbers `[B]`."""
        del lengths
        found: Tensor = output.logits[:, 0]
        return found


def _queries(model: Regressor, texts: Sequence[str]) -> list[RegressQuery]:
    """Return queries of the texts, and of pairs where the model reads pairs."""
    pairs = [] if model.config.pairs is None else model.pair_queries(sample_pairs(texts), truncate=True)
    return [*model.queries(texts, truncate=True), *pairs]


def _activation(config: Mapping[str, Any]) -> str:
    """Return what sentence-transformers applies to the number of a cross-encoder."""
    stated = config.get("sentence_transformers")
    name = stated.get("activation_fn") if isinstance(stated, dict) else None
    name = name or config.get("sbert_ce_default_activation_function")
    if name is None:
        return "none" if config.get("problem_type") == "regression" else "sigmoid"
    return "sigmoid" if str(name).endswith("Sigmoid") else "none"
