"""Import of encoders for token classification, such as models of named entities, of any architecture of transformers.

Shapes: `B` texts, `T` tokens, `C` labels.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from models.tasks.token_classification import Tagger
from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.weight_file import WeightFile
from training.importing.encoder import Encoder, labels_of
from training.importing.importer import TAGGER, ImportOptions, register
from training.importing.source import SourceDirectory
from training.importing.tagger import TaggerImporter, token_labels
from training.importing.tokenizers import compare_spans

__all__ = ["TokenClassifierImporter"]


@register(TAGGER)
class TokenClassifierImporter(TaggerImporter):
    """The import of a model of transformers that labels the tokens of a text."""

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self.labels = token_labels(source.config.get("id2label"), labels_of(source))
        self._encoder = encoder = Encoder(source, options)
        encoder.pairs = None  # tokens are those of single texts
        self.tokenizer, self.special, self.max_tokens = encoder.tokenizer, encoder.special, encoder.max_tokens

    def network(self) -> Mapping[str, object]:
        return self._encoder.network

    def network_line(self) -> str:
        return self._encoder.network_line

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        return {"tag": self._encoder.graph(weights, _LogProbabilities(), self.contract)}

    def largest_difference(self, model: Tagger, bundle: Path, texts: Sequence[str]) -> float:
        self._encoder.compare_tokens(self.tokenizer, texts)
        compare_spans(self.tokenizer, self._encoder.reference_tokenizer, texts)
        return super().largest_difference(model, bundle, texts)

    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        found: NDArray[np.float32] = functional.log_softmax(self._encoder.reference(text).logits[0], -1).numpy()
        return found


class _LogProbabilities(nn.Module):
    def forward(self, output: Any, lengths: Tensor) -> Tensor:
        """Scores `[B, T, C]` -> log-probabilities `[B, T, C]`."""
        del lengths
        return functional.log_softmax(output.logits, dim=-1)
