"""Import of any text classifier in the ONNX format, with inputs as `onnx_graph` describes them.

The graph gives `logits` `[B, C]`; the best classes are chosen after it.

Shapes: `B` texts, `C` classes, `k` classes asked for.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from models.tasks.zero_shot import NORMALIZERS
from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.weight_file import WeightFile
from training.importing.classifier import ClassifierImporter, checked_labels
from training.importing.errors import ImportRefused
from training.importing.importer import ONNX, ImportOptions, register
from training.importing.onnx_encoder import OnnxEncoder
from training.importing.onnx_graph import HIDDEN, OriginalGraph, graph_outputs, read_graph, scores_output
from training.importing.source import CONFIG, SourceDirectory

__all__ = ["OnnxClassifierImporter"]

_OF_TOKENS = (
    f"; of a model that labels tokens, architectures in {CONFIG} must name a class ...ForTokenClassification, and "
    f"hidden states of a model of embeddings must be named {' or '.join(HIDDEN)}"
)


@register(ONNX)
class OnnxClassifierImporter(ClassifierImporter):
    """The import of an ONNX file."""

    reference = ("onnxruntime",)
    compares_tokens = False

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        model = read_graph(source)
        output = scores_output(model)
        hint = _OF_TOKENS if len(graph_outputs(model)[output].shape.dim) == 3 else ""
        original = OriginalGraph(model, output, ("texts", "classes"), "a matrix of scores", hint)
        self._encoder = encoder = OnnxEncoder(source, original, options.max_tokens)
        self.tokenizer, self.special, self.max_tokens = encoder.tokenizer, encoder.special, encoder.max_tokens
        self.pairs = encoder.pairs
        _, scores = encoder.sample()
        self.independent = encoder.config.get("problem_type") == "multi_label_classification"
        found = encoder.config.get("id2label") or {str(number): str(number) for number in range(len(scores))}
        self.labels = checked_labels(found, CONFIG)
        if len(self.labels) != len(scores):
            raise ImportRefused(
                f"the graph has {len(scores)} classes, id2label in {CONFIG} has {len(self.labels)}; "
                "name each there, or remove it"
            )

    def network(self) -> Mapping[str, object]:
        return self._encoder.network

    def network_line(self) -> str:
        return self._encoder.network_line

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        nodes = _nodes_after(independent=self.independent, normalizers=self.zero_shot)
        return {"classify": self._encoder.graph(self.contract, nodes)}

    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        scores = self.reference_scores(text)
        normalizer = np.logaddexp(0, scores) if self.independent else np.logaddexp.reduce(scores)
        found: NDArray[np.float32] = scores - normalizer
        return found

    def reference_scores(self, text: EncodedText) -> NDArray[np.float32]:
        return self._encoder.reference(text)


def _nodes_after(*, independent: bool, normalizers: bool) -> list[NodeProto]:
    """Return nodes that choose the k best of scores, `output` `[B, C]`, and with `normalizers` those of that output."""
    if independent:  # log sigmoid(x) = -log(1 + exp(-x))
        normalized = [
            helper.make_node("Neg", ["output"], ["negative"]),
            helper.make_node("Softplus", ["negative"], ["losses"]),
            helper.make_node("Neg", ["losses"], ["normalized"]),
        ]
    else:
        normalized = [helper.make_node("LogSoftmax", ["output"], ["normalized"], axis=-1)]
    return [
        *normalized,
        helper.make_node("Unsqueeze", ["k", "first_axis"], ["count"]),
        helper.make_node("TopK", ["normalized", "count"], ["log_probabilities", "classes"], axis=-1),
        *(_NORMALIZERS if normalizers else ()),
    ]


_NORMALIZERS = (
    helper.make_node("Sub", ["output", "normalized"], ["differences"]),
    helper.make_node("Gather", ["differences", "zero"], [NORMALIZERS], axis=1),
)
"""The logarithm of the softmax's denominator is the score of any class less its log-probability."""
