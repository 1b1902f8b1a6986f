"""The layers of Transformers that follow fairseq's names, as MarianMT, M2M100 and mBART do, from a model file."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.nn import functional

from training.importing.weights import NamedWeights, assign, output_bias
from training.networks.transformer import Activation, Attention, DecoderLayer, EncoderLayer, Transformer

__all__ = ["ACTIVATIONS", "copy_layers", "stored_bias"]

ACTIVATIONS: Mapping[str, Activation] = {"relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu}
"""Activations of feed-forward networks by their names in the manifest."""


def stored_bias(weights: NamedWeights, vocab_size: int, never_generated: Iterable[int]) -> nn.Parameter:
    """Return the bias of each output token `[V]`, minus infinity for those that are never generated."""
    bias = torch.zeros(1, vocab_size)
    if "final_logits_bias" in weights.tensors:
        bias = weights.take("final_logits_bias", shape=(1, vocab_size))
    return output_bias(bias[0], never_generated)


@torch.no_grad()
def copy_layers(weights: NamedWeights, network: Transformer) -> None:
    """Give a network the layers of encoder and decoder; raises `ImportRefused` where a weight is not as expected."""
    for index, layer in enumerate(network.encoder_layers()):
        name = f"model.encoder.layers.{index}"
        _attention(weights, f"{name}.self_attn", layer.attention)
        _feed_forward(weights, name, layer)
        for norm, place in zip(layer.norms, ("self_attn_layer_norm", "final_layer_norm"), strict=True):
            weights.copy_to(f"{name}.{place}", norm)
    for index, decoder_layer in enumerate(network.decoder_layers()):
        name = f"model.decoder.layers.{index}"
        _attention(weights, f"{name}.self_attn", decoder_layer.self_attention)
        _attention(weights, f"{name}.encoder_attn", decoder_layer.cross_attention)
        _feed_forward(weights, name, decoder_layer)
        places = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
        for norm, place in zip(decoder_layer.norms, places, strict=True):
            weights.copy_to(f"{name}.{place}", norm)


def _attention(weights: NamedWeights, name: str, attention: Attention) -> None:
    weights.copy_to(f"{name}.q_proj", attention.query)
    weights.copy_to(f"{name}.out_proj", attention.output)
    size = attention.query.in_features
    for part, shape in (("weight", (size, size)), ("bias", (size,))):
        both = [weights.take(f"{name}.{each}.{part}", shape=shape) for each in ("k_proj", "v_proj")]
        assign(attention.key_value, part, torch.cat(both))


def _feed_forward(weights: NamedWeights, name: str, layer: EncoderLayer | DecoderLayer) -> None:
    weights.copy_to(f"{name}.fc1", layer.feed_forward.inner)
    weights.copy_to(f"{name}.fc2", layer.feed_forward.outer)
