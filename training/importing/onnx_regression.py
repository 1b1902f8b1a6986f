"""Import of rerankers and models of regression in the ONNX format, with inputs as `onnx_graph` describes them.

The graph gives `logits` `[B, 1]` or `[B]`.

Shapes: `B` texts.
"""

from collections.abc import Mapping

from onnx import helper

from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.weight_file import WeightFile
from training.importing.errors import ImportRefused
from training.importing.importer import ONNX_REGRESSOR, ImportOptions, register
from training.importing.onnx_encoder import OnnxEncoder
from training.importing.onnx_graph import OriginalGraph, graph_outputs, read_graph, scores_output
from training.importing.regressor import RegressorImporter, score_activation
from training.importing.source import SourceDirectory

__all__ = ["OnnxRegressionImporter"]


@register(ONNX_REGRESSOR)
class OnnxRegressionImporter(RegressorImporter):
    """The import of an ONNX file."""

    reference = ("onnxruntime",)
    compares_tokens = False
    encoder: OnnxEncoder

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        model = read_graph(source)
        output = scores_output(model)
        self._is_column = len(graph_outputs(model)[output].shape.dim) != 1
        axes = ("texts", "1") if self._is_column else ("texts",)
        self.encoder = OnnxEncoder(source, OriginalGraph(model, output, axes, "a number"), options.max_tokens)
        _, numbers = self.encoder.sample()
        if numbers.size != 1:
            raise ImportRefused(
                f"the graph gives {numbers.size} numbers for each text; export it with one, or "
                "correct problem_type and id2label in config.json to import a classifier"
            )
        self.activation = score_activation(self.encoder.config)

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        to_numbers = (
            helper.make_node("Squeeze", ["output", "second_axis"], ["values"])
            if self._is_column
            else helper.make_node("Identity", ["output"], ["values"])
        )
        return {"regress": self.encoder.graph(self.contract, [to_numbers])}

    def reference_number(self, text: EncodedText) -> float:
        return self.encoder.reference(text).item()
