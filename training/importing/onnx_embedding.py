"""Import of text embeddings in the ONNX format, with inputs as `onnx_graph` describes them.

The graph gives vectors, `sentence_embedding` `[B, d]`, or hidden states, `last_hidden_state` or `token_embeddings`
`[B, T, d]`, of which nodes after it make vectors. The vectors are normalized by the service.

Shapes: `B` texts, `T` tokens, `d` dimensions.
"""

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.weight_file import WeightFile
from training.importing.embedder import EmbedderImporter, put_in_lower_case
from training.importing.errors import ImportRefused
from training.importing.importer import ONNX_EMBEDDER, ImportOptions, register
from training.importing.onnx_encoder import OnnxEncoder
from training.importing.onnx_graph import HIDDEN, VECTORS, OriginalGraph, graph_outputs, read_graph
from training.importing.sentence_modules import SentenceHead, SentenceModules, read_modules, read_settings
from training.importing.source import SourceDirectory

__all__ = ["OnnxEmbeddingImporter"]

_POOLINGS = ("cls", "mean")


@register(ONNX_EMBEDDER)
class OnnxEmbeddingImporter(EmbedderImporter):
    """The import of an ONNX file."""

    reference = ("onnxruntime",)
    compares_tokens = False
    encoder: OnnxEncoder

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        model = read_graph(source)
        outputs = graph_outputs(model)
        self._has_vectors = VECTORS in outputs
        if self._has_vectors:
            original = OriginalGraph(model, VECTORS, ("texts", "dimensions"), "a matrix of numbers")
        else:
            output = next(name for name in HIDDEN if name in outputs)
            original = OriginalGraph(model, output, ("texts", "tokens", "dimensions"), "hidden states")
        self.modules = modules = self._modules()
        self._head = SentenceHead(modules).eval()
        self.encoder = encoder = OnnxEncoder(
            source,
            original,
            options.max_tokens or modules.max_tokens,
            put_in_lower_case if modules.lower_case else lambda tokenizer: None,
        )
        encoder.pairs = None  # vectors are of single texts
        self.tokenizer = encoder.tokenizer
        sample, found = encoder.sample()
        if not self._has_vectors and len(found) != len(sample.tokens):
            raise ImportRefused(
                f"the graph gives hidden states of {len(found)} tokens for a text of {len(sample.tokens)}; export "
                "the graph with a vector for each token, or with one for each text as {VECTORS}"
            )
        self.dimensions = len(self.reference_vector(sample))

    def _modules(self) -> SentenceModules:
        """Return what follows the output of the graph; raises `ImportRefused` for what no nodes are known for."""
        if self._has_vectors:
            if self.options.pooling is not None:
                raise ImportRefused(f"--pooling is for hidden states, and the graph gives vectors ({VECTORS})")
            return read_settings(self.source)
        modules = read_modules(self.source, self.options.pooling)
        if unknown := sorted(set(modules.poolings) - set(_POOLINGS)):
            raise ImportRefused(
                f"pooling {', '.join(unknown)}: of ONNX files with hidden states, {' and '.join(_POOLINGS)} can be "
                f"imported; export the graph with the output {VECTORS}, or import the directory with its weights"
            )
        if modules.dense:
            raise ImportRefused(
                "dense layers after hidden states of ONNX files cannot be imported; export the graph with the output "
                f"{VECTORS}, or import the directory with its weights"
            )
        return modules

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        nodes = _pooling_nodes(self.modules.poolings)
        return {"embed": self.encoder.graph(self.contract, nodes)}

    @torch.no_grad()
    def reference_vector(self, text: EncodedText) -> NDArray[np.float32]:
        found = self.encoder.reference(text)
        if self._has_vectors:
            return found
        hidden = SimpleNamespace(last_hidden_state=torch.from_numpy(found)[None])
        vector: NDArray[np.float32] = self._head(hidden, torch.tensor([len(text.tokens)]))[0].numpy()
        return vector


def _pooling_nodes(poolings: tuple[str, ...]) -> list[NodeProto]:
    """Return nodes that make `vectors` of `output`: hidden states `[B, T, d]`, or without poolings vectors `[B, d]`."""
    if not poolings:
        return [helper.make_node("Identity", ["output"], ["vectors"])]
    nodes: list[NodeProto] = []
    if "cls" in poolings:
        nodes.append(helper.make_node("Gather", ["output", "zero"], ["cls"], axis=1))
    if "mean" in poolings:
        nodes += [
            helper.make_node("Cast", ["inside"], ["weights"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["weights", "third_axis"], ["weight_columns"]),
            helper.make_node("Mul", ["output", "weight_columns"], ["weighted"]),
            helper.make_node("ReduceSum", ["weighted", "second_axis"], ["sums"], keepdims=0),
            helper.make_node("ReduceSum", ["weight_columns", "second_axis"], ["counts"], keepdims=0),
            helper.make_node("Div", ["sums", "counts"], ["mean"]),
        ]
    return [*nodes, helper.make_node("Concat", list(poolings), ["vectors"], axis=-1)]
