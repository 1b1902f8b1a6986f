"""Import of models of token classification in the ONNX format, with inputs as `onnx_classifier` describes them.

The graph gives `logits` `[B, T, C]`. Of its tokenizer, the characters of tokens are not compared with another one's.

Shapes: `B` texts, `T` tokens, `C` labels.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.importing.errors import ImportRefused
from training.importing.importer import ONNX, ONNX_TAGGER, ImportOptions, register
from training.importing.onnx_classifier import OriginalGraph, network_sizes, read_graph, stated_tokens, wrapped
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tagger import TaggerImporter, token_labels
from training.importing.tokenizers import encoder_tokenizer, read_tokenizer

__all__ = ["OnnxTaggerImporter"]


@register(ONNX_TAGGER)
class OnnxTaggerImporter(TaggerImporter):
    """The import of an ONNX file."""

    reference = ("onnxruntime",)
    compares_tokens = False

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self.tokenizer, self.special = encoder_tokenizer(read_tokenizer(source))
        self._config = source.json(CONFIG)
        self._original = OriginalGraph(read_graph(source), ("texts", "tokens", "labels"))
        self.max_tokens = options.max_tokens or stated_tokens(source)
        if self.max_tokens < 3:
            raise ImportRefused(f"--max-tokens must be at least 3, not {self.max_tokens}")
        sample = (self.special.start or 0, self.tokenizer.vocab_size - 1, self.special.end)
        scores = self._original.logits(EncodedText(sample, len(sample)))
        if len(scores) != len(sample):
            raise ImportRefused(f"the graph gives scores of {len(scores)} tokens for a text of {len(sample)}")
        self.labels = token_labels(self._config.get("id2label"), scores.shape[1])

    def network(self) -> Mapping[str, object]:
        return {"architecture": ONNX, **network_sizes(self._config), "positions": self.max_tokens}

    def network_line(self) -> str:
        return self._original.line

    def graphs(self) -> Mapping[str, BundleGraph]:
        normalized = helper.make_node("LogSoftmax", ["scores"], ["log_probabilities"], axis=-1)
        return {"tag": BundleGraph(self.contract, wrapped(self._original, self.contract, [normalized]))}

    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        scores = self._original.logits(text)
        found: NDArray[np.float32] = scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
        return found
