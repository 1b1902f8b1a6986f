"""Import of models of token classification in the ONNX format, with inputs as `onnx_graph` describes them.

The graph gives `logits` `[B, T, C]`. Of its tokenizer, the characters of tokens are not compared with another one's.

Shapes: `B` texts, `T` tokens, `C` labels.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.weight_file import WeightFile
from training.importing.errors import ImportRefused
from training.importing.importer import ONNX_TAGGER, ImportOptions, register
from training.importing.onnx_encoder import OnnxEncoder
from training.importing.onnx_graph import OriginalGraph, read_graph, scores_output
from training.importing.source import SourceDirectory
from training.importing.tagger import TaggerImporter, token_labels

__all__ = ["OnnxTaggerImporter"]


@register(ONNX_TAGGER)
class OnnxTaggerImporter(TaggerImporter):
    """The import of an ONNX file."""

    reference = ("onnxruntime",)
    compares_tokens = False

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        model = read_graph(source)
        original = OriginalGraph(model, scores_output(model), ("texts", "tokens", "labels"), "scores")
        self._encoder = encoder = OnnxEncoder(source, original, options.max_tokens)
        self.tokenizer, self.special, self.max_tokens = encoder.tokenizer, encoder.special, encoder.max_tokens
        sample, scores = encoder.sample()
        if len(scores) != len(sample.tokens):
            raise ImportRefused(
                f"the graph gives scores of {len(scores)} tokens for a text of {len(sample.tokens)}; export "
                "the graph with scores of each token"
            )
        self.labels = token_labels(encoder.config.get("id2label"), scores.shape[1])

    def network(self) -> Mapping[str, object]:
        return self._encoder.network

    def network_line(self) -> str:
        return self._encoder.network_line

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        normalized = helper.make_node("LogSoftmax", ["output"], ["log_probabilities"], axis=-1)
        return {"tag": self._encoder.graph(self.contract, [normalized])}

    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        scores = self._encoder.reference(text)
        found: NDArray[np.float32] = scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
        return found
