"""What imported models of token classification share, whatever computes their reference.

Shapes: `B` texts, `T` tokens, `C` labels.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from models.bundle.contract import SpecialTokens
from models.bundle.manifest import Graph
from models.tasks.token_classification import MOST_LABELS, Tagger, Window
from models.text.encoding import EncodedText
from models.text.tokenization import EncoderTokenizer
from training.bundling.graphs import contract
from training.bundling.model_card import Card
from training.importing.classifier import checked_labels
from training.importing.encoder import calibration_batches, encoder_tensors, quantized
from training.importing.errors import ImportRefused
from training.importing.importer import Agreement, Importer
from training.importing.source import CONFIG
from training.importing.tokenizers import TOKENIZER
from training.tasks.classification import label_file
from training.tasks.classification_export import LABELS

__all__ = ["TaggerImporter", "token_labels"]


class TaggerImporter(Importer):
    """The import of a model that labels the tokens of a text; constructors of subclasses set the attributes."""

    task = "token-classification"
    labels: tuple[str, ...]
    tokenizer: EncoderTokenizer
    special: SpecialTokens
    max_tokens: int

    @property
    def contract(self) -> Graph:
        """The contract of the graph."""
        outputs = {"log_probabilities": ("float32", ("batch", "steps", len(self.labels)))}
        return contract(encoder_tensors(None), outputs)

    @abc.abstractmethod
    def network(self) -> Mapping[str, object]:
        """Return the manifest's description of the encoder."""

    @abc.abstractmethod
    def network_line(self) -> str:
        """Return a line of the model card about the network."""

    @abc.abstractmethod
    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the log-probabilities `[T, C]` of the tokens of a text."""

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.tokenizer.save, LABELS: label_file(self.labels)}

    def config(self) -> Mapping[str, object]:
        return {
            "network": {"kind": "imported", **self.network()},
            "labels": {"file": LABELS, "count": len(self.labels)},
            "tokenizer": TOKENIZER,
            "vocab_size": self.tokenizer.vocab_size,
            "special_tokens": self.special.model_dump(),
            "limits": {"max_tokens": self.max_tokens},
        }

    def largest_difference(self, model: Tagger, bundle: Path, texts: Sequence[str]) -> float:
        del bundle
        encoded = [window.encoded for window in _windows(model, texts)]
        expected = [self.reference_log_probabilities(text) for text in encoded]
        alone = [model.log_probabilities([text])[0] for text in encoded]
        found = zip(expected, model.log_probabilities(encoded), alone, strict=True)
        return float(np.max([np.abs(np.stack(ours) - theirs).max() for theirs, *ours in found]))

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Tagger, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        return quantized(models, "tag", calibration_batches(_windows(model, texts), None), "log_probabilities")

    def agreement(self, float32: Tagger, lossy: Tagger, texts: Sequence[str]) -> Agreement:
        """Compare the tokens of all texts, without those that the tokenizer adds."""
        encoded = [window.encoded for window in _windows(float32, texts)]
        one, other = (
            np.exp(np.concatenate([row[1:-1] for row in model.log_probabilities(encoded)]))
            for model in (float32, lossy)
        )
        return Agreement(
            metric="tokens with the same label as float32",
            value=float((one.argmax(1) == other.argmax(1)).mean()),
            difference=float(np.abs(one - other).max()),
        )

    def card(self) -> Card:
        return Card(
            network=self.network_line(),
            outputs=f"Labels of tokens: {len(self.labels)}, in `{LABELS}`\n"
            f"* Vocabulary: {self.tokenizer.vocab_size} tokens",
            limits=f"Each text, or each window of a longer one, may have up to {self.max_tokens} tokens. It knows "
            "no label but its own. It repeats the\nbiases of its training data.",
        )


def token_labels(found: object, count: int) -> tuple[str, ...]:
    """Return the `count` labels of `id2label`; raises `ImportRefused` for labels that a bundle cannot have."""
    if not 2 <= count <= MOST_LABELS:
        raise ImportRefused(f"the model has {count} labels; train it again with 2 to {MOST_LABELS}")
    labels = checked_labels(found or {str(number): f"LABEL_{number}" for number in range(count)}, CONFIG)
    if len(labels) != count:
        raise ImportRefused(f"the model has {count} labels, id2label in {CONFIG} has {len(labels)}; name each there")
    return labels


def _windows(model: Tagger, texts: Sequence[str]) -> list[Window]:
    """Return the beginning of each text that has tokens."""
    return [window for query in model.queries(texts, truncate=True) for window in query.windows]
