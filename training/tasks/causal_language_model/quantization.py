"""The int4 graphs of causal language models."""

from collections.abc import Mapping

import onnx

from training.bundling.block_quantization import quantize_blocks

__all__ = ["int4_graphs"]


def int4_graphs(models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
    """Return the graphs of `causal_graphs` with 4-bit weights in layers, and 8-bit ones in token vectors and the head.

    Four bits in the head cost several times as much perplexity as in all layers, and would be stored in addition to the
    token vectors where those are tied to it.
    """
    return {name: quantize_blocks(model, 8 if name == "predict" else 4) for name, model in models.items()}
