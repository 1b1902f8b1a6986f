"""The graphs of causal language models with int8 and int4 weights."""

from collections.abc import Mapping

import onnx

from training.bundling.block_quantization import quantize_blocks

__all__ = ["INT8_LARGEST_BLOCK", "int4_graphs", "int8_graphs"]

INT8_LARGEST_BLOCK = 128
"""Weights of a block of 8 bits at most. Smaller blocks take more memory and time, and the perplexity of a trained model
is no lower with them."""


def int8_graphs(models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
    """Return the graphs of `causal_graphs` with 8-bit weights and activations of 16 bits.

    Activations of 8 bits would be faster, but the score of a text would depend on the other texts of its batch.
    """
    return {
        name: quantize_blocks(model, 8, largest_block=INT8_LARGEST_BLOCK, split_activations=True)
        for name, model in models.items()
    }


def int4_graphs(models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
    """Return the graphs of `causal_graphs` with 4-bit weights in layers, and 8-bit ones in token vectors and the head.

    Four bits in the head cost several times as much perplexity as in all layers, and would be stored in addition to the
    token vectors where those are tied to it.
    """
    return {name: quantize_blocks(model, 8 if name == "predict" else 4) for name, model in models.items()}
