"""The weights of T5 and mT5 models (Raffel et al. 2020; Shazeer 2020), in the project's own Transformer.

Norms are of the root mean square, before the sublayers and at the end of encoder and decoder; neither they nor the
projections have a bias. Scores of attention are not scaled; those of self-attention have biases by the distance of the
tokens, the same in all layers. Outputs of a T5 model with `tie_word_embeddings` are scaled by the root of 1 / d.

Shapes: `V` tokens, `d` hidden size, `H` heads, `D` the largest distance with a bias of its own.
"""

import functools
import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from training.importing.source import SourceDirectory
from training.importing.translation_settings import Size, Token, TranslationSettings
from training.importing.weights import NamedWeights, assign, output_bias, without_memory
from training.networks.transformer import (
    Activation,
    Attention,
    DecoderLayer,
    EncoderLayer,
    RelativeBiases,
    Transformer,
    Variation,
)
from training.networks.translation_model import TranslationModel
from training.softmax import GeneralizedSoftmax

__all__ = ["T5Settings", "read_t5", "relative_buckets"]

_ACTIVATIONS: Mapping[str, Activation] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_new": functools.partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
}


class T5Settings(TranslationSettings):
    """The fields of `config.json` that say what the model computes; defaults are those of transformers."""

    model_type: Literal["t5", "mt5"]
    vocab_size: Size
    d_model: Size = 512
    d_kv: Size = 64
    d_ff: Size
    num_layers: Size
    num_decoder_layers: Size | None = None
    num_heads: Size
    relative_attention_num_buckets: Annotated[int, Field(ge=4)] = 32
    relative_attention_max_distance: Annotated[int, Field(ge=2, le=4096)] = 128
    layer_norm_epsilon: Annotated[float, Field(gt=0)] = 1e-6
    feed_forward_proj: Literal["relu", "gelu", "silu", "gated-relu", "gated-gelu", "gated-silu"]
    tie_word_embeddings: bool = True
    pad_token_id: Token = 0
    eos_token_id: Token = 1
    decoder_start_token_id: Token | None = 0

    @classmethod
    def defaults(cls, config: Mapping[str, object]) -> Mapping[str, object]:
        if config.get("model_type") != "mt5":
            return {"vocab_size": 32128, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "feed_forward_proj": "relu"}
        sizes = {"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6}
        return {**sizes, "feed_forward_proj": "gated-gelu"}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        buckets = self.relative_attention_num_buckets
        if buckets % 4 or self.relative_attention_max_distance <= buckets // 2:
            raise ValueError(
                "relative_attention_num_buckets must be divisible by 4, and less than twice "
                "relative_attention_max_distance"
            )
        if max(self.pad_token_id, self.eos_token_id, self.start) >= self.vocab_size:
            raise ValueError(f"special tokens must be below the vocab_size, which is {self.vocab_size}")
        if self.eos_token_id in self.never_generated:
            raise ValueError("eos_token_id must not be one of bad_words_ids")
        return self

    @property
    def start(self) -> int:
        """Return the token that outputs start after; padding where none is stated."""
        return self.pad_token_id if self.decoder_start_token_id is None else self.decoder_start_token_id

    @property
    def decoder_layers(self) -> int:
        return self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers

    @property
    def gated(self) -> bool:
        return self.feed_forward_proj.startswith("gated-")

    @property
    def activation(self) -> Activation:
        """Return the activation: `gated-gelu` is the approximation by a hyperbolic tangent."""
        name = self.feed_forward_proj.removeprefix("gated-")
        return _ACTIVATIONS["gelu_new" if self.feed_forward_proj == "gated-gelu" else name]

    @property
    def output_scale(self) -> float:
        """Return the factor of the decoder's outputs."""
        return self.d_model**-0.5 if self.model_type == "t5" and self.tie_word_embeddings else 1.0


def relative_buckets(distances: Tensor, buckets: int, most: int) -> Tensor:
    """Return the bucket of each distance from 0 on: one each for the first half, then by their logarithm up to `most`.

    In float32, as transformers computes them: rounding decides at the bounds of buckets.
    """
    exact = buckets // 2
    share = torch.log(distances.clamp(min=1).float() / exact) / math.log(most / exact)
    large = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
    return torch.where(distances < exact, distances, large)


def _biases(encoder: Tensor, decoder: Tensor, most: int) -> RelativeBiases:
    """Return the biases by distance of those by bucket, `[buckets, H]` of each side."""
    distances = torch.arange(most + 1)
    half = encoder.shape[0] // 2
    buckets = relative_buckets(distances, half, most)
    before, after = encoder[buckets], encoder[buckets + half]
    both = torch.cat([before.flip(0), after[1:]])  # a distance is that of the key minus that of the query
    return RelativeBiases(both, decoder[relative_buckets(distances, decoder.shape[0], most)])


@torch.no_grad()
def read_t5(source: SourceDirectory, settings: T5Settings) -> TranslationModel:
    """Return the model of a directory, in evaluation mode; raises `ImportRefused` where a weight is not as expected."""
    weights, size = NamedWeights(source.weights()), (settings.vocab_size, settings.d_model)
    names = ["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    vectors = output = nn.Parameter(weights.take(*names, shape=size))
    if (head := weights.tensors.get("lm_head.weight")) is not None:
        taken = weights.take("lm_head.weight", shape=size)
        output = vectors if torch.equal(head.float(), vectors) else nn.Parameter(taken)
    layer = GeneralizedSoftmax(1, settings.d_model, bias=True)
    layer.weight = output
    layer.bias = output_bias(torch.zeros(settings.vocab_size), settings.never_generated)
    network = _network(weights, settings)
    # Earlier versions of transformers wrote biases of cross-attention, which it never read.
    unused = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
    weights.expect_none_left(f"{settings.model_type} model", unused)
    own = None if output is vectors else vectors
    model = TranslationModel(network, layer, source_vectors=own, target_vectors=own)
    return model.requires_grad_(False).eval()


def _network(weights: NamedWeights, settings: T5Settings) -> Transformer:
    shape = (settings.relative_attention_num_buckets, settings.num_heads)
    tables = [
        weights.take(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", shape=shape)
        for side in ("encoder", "decoder")
    ]
    biases = _biases(tables[0], tables[1], settings.relative_attention_max_distance)
    positions = torch.empty(0, settings.d_model)
    with without_memory():
        network = Transformer(
            settings.d_model,
            settings.d_ff,
            settings.num_heads,
            settings.num_layers,
            settings.decoder_layers,
            dropout=0.0,
            norm="pre",
            activation=settings.activation,
            embedding_scale=1.0,
            variation=Variation(
                rms_norm=True,
                norm_epsilon=settings.layer_norm_epsilon,
                bias=False,
                gated=settings.gated,
                head_size=settings.d_kv,
                attention_scale=1.0,
            ),
            positions=positions,
            biases=biases,
        )
    for index, layer in enumerate(network.encoder_layers()):
        name = f"encoder.block.{index}.layer"
        _attention(weights, f"{name}.0.SelfAttention", layer.attention, settings)
        _feed_forward(weights, f"{name}.1", layer)
        for place, norm in enumerate(layer.norms):
            weights.copy_to(f"{name}.{place}.layer_norm", norm)
    for index, decoder_layer in enumerate(network.decoder_layers()):
        name = f"decoder.block.{index}.layer"
        _attention(weights, f"{name}.0.SelfAttention", decoder_layer.self_attention, settings)
        _attention(weights, f"{name}.1.EncDecAttention", decoder_layer.cross_attention, settings)
        _feed_forward(weights, f"{name}.2", decoder_layer)
        for place, norm in enumerate(decoder_layer.norms):
            weights.copy_to(f"{name}.{place}.layer_norm", norm)
    weights.copy_to("encoder.final_layer_norm", network.encoder_norm)
    weights.copy_to("decoder.final_layer_norm", network.decoder_norm)
    for name, weight in list(network.decoder_norm.named_parameters()):
        assign(network.decoder_norm, name, weight * settings.output_scale)
    return network


def _attention(weights: NamedWeights, name: str, attention: Attention, settings: T5Settings) -> None:
    inner = settings.num_heads * settings.d_kv
    weights.copy_to(f"{name}.q", attention.query)
    weights.copy_to(f"{name}.o", attention.output)
    both = [weights.take(f"{name}.{each}.weight", shape=(inner, settings.d_model)) for each in ("k", "v")]
    assign(attention.key_value, "weight", torch.cat(both))


def _feed_forward(weights: NamedWeights, name: str, layer: EncoderLayer | DecoderLayer) -> None:
    parts = layer.feed_forward
    weights.copy_to(f"{name}.DenseReluDense.{'wi' if parts.gated is None else 'wi_0'}", parts.inner)
    if parts.gated is not None:
        weights.copy_to(f"{name}.DenseReluDense.wi_1", parts.gated)
    weights.copy_to(f"{name}.DenseReluDense.wo", parts.outer)
