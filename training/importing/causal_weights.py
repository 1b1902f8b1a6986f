"""The weights of causal language models of several families, in the project's own network."""

import torch
from torch import Tensor, nn

from training.importing.causal_config import CausalConfig
from training.importing.errors import ImportRefused
from training.importing.weights import NamedWeights, assign
from training.networks.causal_transformer import CausalHead, CausalLayer, CausalSettings, CausalTransformer

__all__ = ["read_causal_weights"]

_MASKS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq")
"""Ends of the names of tensors in older files that are computed: masks of attention, and rates of rotation."""
_TRANSFORMER = "transformer."
"""Beginning of the names of GPT-2, which its oldest files lack."""


@torch.no_grad()
def read_causal_weights(
    architecture: str, config: CausalConfig, tensors: dict[str, Tensor]
) -> tuple[CausalTransformer, CausalHead]:
    """Return network and output layer, which share the tokens' vectors where these are tied, in evaluation mode.

    Raises `ImportRefused` where weights are missing, left over, or not as expected.
    """
    weights = NamedWeights({name: tensor for name, tensor in tensors.items() if not name.endswith(_MASKS)})
    network, head = CausalTransformer(config.settings), CausalHead(config.settings)
    if architecture.startswith("GPT2"):
        output = _gpt2(weights, network)
    elif architecture.startswith("GPTNeoX"):
        output = _neox(weights, network)
    else:
        output = _llama(weights, network, offset=1.0 if architecture.startswith("Gemma") else 0.0)
    size = (config.settings.vocab_size, config.settings.hidden_size)
    if config.tied:
        head.linear.weight = network.embedding.weight
        if any(name in weights.tensors for name in output):
            stored = weights.take(*output, shape=size)
            if not torch.equal(stored, network.embedding.weight):
                raise ImportRefused(f"weights: {output[0]} differs from the tokens' vectors that it is tied to")
    else:
        assign(head.linear, "weight", weights.take(*output, shape=size))
    weights.expect_none_left(architecture)
    for layer in network.decoder_layers():
        _scale_queries(layer, config.attention_scale)
    return network.requires_grad_(False).eval(), head.requires_grad_(False).eval()


def _gpt2(weights: NamedWeights, network: CausalTransformer) -> tuple[str, ...]:
    """Copy the weights of GPT-2, whose matrices are stored as `[inputs, outputs]`; return the output layer's names."""
    if not any(name.startswith(_TRANSFORMER) for name in weights.tensors):
        named = {
            name if name == "lm_head.weight" else _TRANSFORMER + name: each for name, each in weights.tensors.items()
        }
        weights.tensors.clear()
        weights.tensors.update(named)
    weights.copy_to("transformer.wte", network.embedding)
    assert network.positions is not None
    weights.copy_to("transformer.wpe", network.positions)
    for index, layer in enumerate(network.decoder_layers()):
        name = f"transformer.h.{index}"
        weights.copy_to(f"{name}.ln_1", layer.attention_norm)
        weights.copy_to(f"{name}.ln_2", layer.feed_forward_norm)
        size, attention = network.settings.hidden_size, layer.attention
        matrix = weights.take(f"{name}.attn.c_attn.weight", shape=(size, 3 * size)).T
        bias = weights.take(f"{name}.attn.c_attn.bias", shape=(3 * size,))
        for linear, *parts in zip(_projections(layer), matrix.chunk(3), bias.chunk(3), strict=True):
            _set(linear, *parts)
        _copy_transposed(weights, f"{name}.attn.c_proj", attention.output)
        _copy_transposed(weights, f"{name}.mlp.c_fc", layer.feed_forward.inner)
        _copy_transposed(weights, f"{name}.mlp.c_proj", layer.feed_forward.outer)
    weights.copy_to("transformer.ln_f", network.norm)
    return ("lm_head.weight",)


def _neox(weights: NamedWeights, network: CausalTransformer) -> tuple[str, ...]:
    """Copy the weights of GPT-NeoX, which stores queries, keys and values head by head."""
    weights.copy_to("gpt_neox.embed_in", network.embedding)
    for index, layer in enumerate(network.decoder_layers()):
        name = f"gpt_neox.layers.{index}"
        weights.copy_to(f"{name}.input_layernorm", layer.attention_norm)
        weights.copy_to(f"{name}.post_attention_layernorm", layer.feed_forward_norm)
        for part, values in _by_head(weights, f"{name}.attention.query_key_value", network.settings).items():
            for linear, each in zip(_projections(layer), values, strict=True):
                assign(linear, part, each)
        weights.copy_to(f"{name}.attention.dense", layer.attention.output)
        weights.copy_to(f"{name}.mlp.dense_h_to_4h", layer.feed_forward.inner)
        weights.copy_to(f"{name}.mlp.dense_4h_to_h", layer.feed_forward.outer)
    weights.copy_to("gpt_neox.final_layer_norm", network.norm)
    return "embed_out.weight", "lm_head.weight"


def _by_head(weights: NamedWeights, name: str, settings: CausalSettings) -> dict[str, tuple[Tensor, ...]]:
    """Return the weights and biases of queries, keys and values."""
    heads, size, hidden = settings.heads, settings.head_size, settings.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"weight": (3 * heads * size, hidden)}
    if settings.projection_bias:
        shapes["bias"] = (3 * heads * size,)
    found = {}
    for part, shape in shapes.items():
        stored = weights.take(f"{name}.{part}", shape=shape).unflatten(0, (heads, 3, size))
        found[part] = tuple(each.flatten(0, 1) for each in stored.unbind(1))
    return found


def _llama(weights: NamedWeights, network: CausalTransformer, *, offset: float) -> tuple[str, ...]:
    """Copy the weights of Llama and its relatives; norms multiply by `offset` plus their weights."""
    settings = network.settings
    norms: list[tuple[str, nn.Module]] = [("model.norm", network.norm)]
    weights.copy_to("model.embed_tokens", network.embedding)
    for index, layer in enumerate(network.decoder_layers()):
        name, attention, fed = f"model.layers.{index}", layer.attention, layer.feed_forward
        for part, linear in zip(("q_proj", "k_proj", "v_proj"), _projections(layer), strict=True):
            weights.copy_to(f"{name}.self_attn.{part}", linear)
        weights.copy_to(f"{name}.self_attn.o_proj", attention.output)
        assert fed.gate is not None
        for part, linear in zip(("gate_proj", "up_proj", "down_proj"), (fed.gate, fed.inner, fed.outer), strict=True):
            weights.copy_to(f"{name}.mlp.{part}", linear)
        norms += [
            (f"{name}.input_layernorm", layer.attention_norm),
            (f"{name}.self_attn.q_norm", attention.query_norm),
            (f"{name}.self_attn.k_norm", attention.key_norm),
        ]
        before, after = "post_attention_layernorm", layer.feed_forward_norm
        if settings.output_norms:
            norms += [
                (f"{name}.{before}", layer.attention_output_norm),
                (f"{name}.post_feedforward_layernorm", layer.feed_forward_output_norm),
            ]
            before = "pre_feedforward_layernorm"
        norms.append((f"{name}.{before}", after))
    for name, norm in norms:
        weights.copy_to(name, norm)
        for part, weight in list(norm.named_parameters()):
            assign(norm, part, weight + offset)
    return ("lm_head.weight",)


def _projections(layer: CausalLayer) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    return layer.attention.query, layer.attention.key, layer.attention.value


def _set(linear: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    assign(linear, "weight", weight.contiguous())
    assign(linear, "bias", bias)


def _copy_transposed(weights: NamedWeights, name: str, linear: nn.Linear) -> None:
    inputs, outputs = linear.in_features, linear.out_features
    matrix = weights.take(f"{name}.weight", shape=(inputs, outputs)).T
    _set(linear, matrix, weights.take(f"{name}.bias", shape=(outputs,)))


def _scale_queries(layer: CausalLayer, scale: float) -> None:
    """Multiply queries by the scale of attention: their norm, or without one their projection."""
    attention = layer.attention
    scaled = attention.query_norm if list(attention.query_norm.parameters()) else attention.query
    for name, parameter in list(scaled.named_parameters()):
        assign(scaled, name, parameter * scale)
