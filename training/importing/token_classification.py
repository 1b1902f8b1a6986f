"""Import of encoders for token classification, such as models of named entities, of any architecture of transformers.

Shapes: `B` texts, `T` tokens, `C` labels.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from models.tasks.token_classification import MOST_LABELS, Tagger, Window
from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.calibration import RangeRecorder
from training.bundling.graphs import contract
from training.bundling.model_card import Card
from training.bundling.quantize import matrix_products, quantize_int8_static
from training.importing.classifier import checked_labels
from training.importing.encoder import Encoder, calibration_batches, encoder_tensors, labels_of
from training.importing.errors import ImportRefused
from training.importing.importer import TAGGER, Agreement, Importer, ImportOptions, register
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tokenizers import TOKENIZER, compare_spans
from training.tasks.classification import label_file
from training.tasks.classification_export import LABELS

__all__ = ["TokenClassifierImporter"]


@register(TAGGER)
class TokenClassifierImporter(Importer):
    """The import of a model of transformers that labels the tokens of a text."""

    task = "token-classification"

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        count = labels_of(source)
        if not 2 <= count <= MOST_LABELS:
            raise ImportRefused(f"the model has {count} labels; models with 2 to {MOST_LABELS} can be imported")
        self._encoder = encoder = Encoder(source, options)
        encoder.pairs = None  # tokens are those of single texts
        found = source.config.get("id2label") or {str(number): f"LABEL_{number}" for number in range(count)}
        self.labels = checked_labels(found, CONFIG)

    def graphs(self) -> Mapping[str, BundleGraph]:
        outputs = {"log_probabilities": ("float32", ("batch", "steps", len(self.labels)))}
        return {"tag": self._encoder.graph(_LogProbabilities(), contract(encoder_tensors(None), outputs))}

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self._encoder.tokenizer.save, LABELS: label_file(self.labels)}

    def config(self) -> Mapping[str, object]:
        encoder = self._encoder
        return {
            "network": encoder.network,
            "labels": {"file": LABELS, "count": len(self.labels)},
            "tokenizer": TOKENIZER,
            "vocab_size": encoder.tokenizer.vocab_size,
            "special_tokens": encoder.special.model_dump(),
            "limits": {"max_tokens": encoder.max_tokens},
        }

    def largest_difference(self, model: Tagger, bundle: Path, texts: Sequence[str]) -> float:
        del bundle
        self._encoder.compare_tokens(self._encoder.tokenizer, texts)
        compare_spans(self._encoder.tokenizer, self._encoder.reference_tokenizer, texts)
        encoded = [window.encoded for window in _windows(model, texts)]
        expected = [self._reference(text) for text in encoded]
        alone = [model.log_probabilities([text])[0] for text in encoded]
        found = zip(expected, model.log_probabilities(encoded), alone, strict=True)
        return max(float(np.abs(np.stack(ours) - theirs).max()) for theirs, *ours in found)

    def _reference(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the log-probabilities of transformers, `[T, C]`."""
        found: NDArray[np.float32] = functional.log_softmax(self._encoder.reference(text).logits[0], -1).numpy()
        return found

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Tagger, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        if not any(matrix_products(each) for each in models.values()):
            raise ImportRefused("the graph has no products with float32 matrices, so that int8 would change nothing")
        recorder = RangeRecorder(models)
        for inputs in calibration_batches(_windows(model, texts), None):
            recorder.run("tag", inputs, ["log_probabilities"])
        return {name: quantize_int8_static(each, recorder.ranges(name)) for name, each in models.items()}

    def agreement(self, float32: Tagger, int8: Tagger, texts: Sequence[str]) -> Agreement:
        """Compare the tokens of all texts, without those that the tokenizer adds."""
        encoded = [window.encoded for window in _windows(float32, texts)]
        one, other = (
            np.exp(np.concatenate([row[1:-1] for row in model.log_probabilities(encoded)])) for model in (float32, int8)
        )
        return Agreement(
            metric="tokens with the same label as float32",
            value=float((one.argmax(1) == other.argmax(1)).mean()),
            difference=float(np.abs(one - other).max()),
        )

    def card(self) -> Card:
        encoder = self._encoder
        return Card(
            network=encoder.network_line,
            outputs=f"Labels of tokens: {len(self.labels)}, in `{LABELS}`\n"
            f"* Vocabulary: {encoder.tokenizer.vocab_size} tokens",
            limits=f"Each text, or each window of a longer one, may have up to {encoder.max_tokens} tokens. It knows "
            "no label but its own. It repeats the\nbiases of its training data.",
        )


class _LogProbabilities(nn.Module):
    def forward(self, output: Any, lengths: Tensor) -> Tensor:
        """Scores `[B, T, C]` -> log-probabilities `[B, T, C]`."""
        del lengths
        return functional.log_softmax(output.logits, dim=-1)


def _windows(model: Tagger, texts: Sequence[str]) -> list[Window]:
    """Return the beginning of each text that has tokens."""
    return [window for query in model.queries(texts, truncate=True) for window in query.windows]
