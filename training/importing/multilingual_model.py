"""The weights of M2M100, NLLB and mBART models, in the project's own Transformer.

Norms stand before the sublayers and at the end of encoder and decoder. Positions of M2M100 and NLLB are sinusoidal,
those of mBART are learned for each side, whose embeddings are normalized. One matrix holds the word vectors of all
languages and the output layer.

Shapes: `V` tokens, `d` hidden size.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from training.importing.bart_weights import ACTIVATIONS, copy_layers, stored_bias
from training.importing.source import SourceDirectory
from training.importing.translation_settings import BartSettings, Token
from training.importing.weights import NamedWeights, without_memory
from training.networks.transformer import Sizes, Transformer, sinusoidal_positions
from training.networks.translation_model import TranslationModel
from training.softmax import GeneralizedSoftmax

__all__ = ["MultilingualSettings", "read_multilingual"]

_OFFSET = 2
"""Rows of a table of learned positions before that of the first token."""


class MultilingualSettings(BartSettings):
    """The fields of `config.json` that say what the model computes; defaults are those of transformers."""

    model_type: Literal["m2m_100", "mbart"]
    normalize_before: Literal[True] = True
    normalize_embedding: Literal[True] = True
    add_final_layer_norm: Literal[True] = True
    static_position_embeddings: Literal[False] = False
    pad_token_id: Token = 1
    eos_token_id: Token = 2
    decoder_start_token_id: Token | None = 2
    forced_bos_token_id: Token | None = None

    @classmethod
    def defaults(cls, config: Mapping[str, object]) -> Mapping[str, object]:
        m2m = config.get("model_type") == "m2m_100"
        return {
            "vocab_size": 128112 if m2m else 50265,
            "activation_function": "relu" if m2m else "gelu",
            "scale_embedding": m2m,
        }

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        heads = self.encoder_attention_heads, self.decoder_attention_heads
        if any(self.d_model % each for each in heads) or self.d_model % 2:
            raise ValueError("d_model must be even and divisible by the heads")
        if max(self.pad_token_id, self.eos_token_id, self.start) >= self.vocab_size:
            raise ValueError(f"special tokens must be below the vocab_size, which is {self.vocab_size}")
        if self.eos_token_id in self.never_generated:
            raise ValueError("eos_token_id must not be one of bad_words_ids")
        return self

    @property
    def start(self) -> int:
        """Return the token that outputs start after; the end where none is stated."""
        return self.eos_token_id if self.decoder_start_token_id is None else self.decoder_start_token_id


@torch.no_grad()
def read_multilingual(source: SourceDirectory, settings: MultilingualSettings) -> TranslationModel:
    """Return the model of a directory, in evaluation mode; raises `ImportRefused` where a weight is not as expected."""
    weights, size = NamedWeights(source.weights()), (settings.vocab_size, settings.d_model)
    names = ["model.shared.weight", *(f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))]
    tied = ["lm_head.weight"] if settings.tie_word_embeddings else []
    vectors = nn.Parameter(weights.take(*names, *tied, shape=size))
    output = vectors if tied else nn.Parameter(weights.take("lm_head.weight", shape=size))
    layer = GeneralizedSoftmax(1, settings.d_model, bias=True)
    layer.weight = output
    layer.bias = stored_bias(weights, settings.vocab_size, settings.never_generated)
    network = _network(weights, settings)
    for side in ("encoder", "decoder"):
        weights.tensors.pop(f"model.{side}.embed_positions.weights", None)  # computed
    weights.expect_none_left(f"{settings.model_type} model")
    own = None if output is vectors else vectors
    model = TranslationModel(network, layer, source_vectors=own, target_vectors=own)
    return model.requires_grad_(False).eval()


def _positions(weights: NamedWeights, settings: MultilingualSettings) -> tuple[Tensor, Tensor | None]:
    """Return the position vectors of source and target `[positions, d]`; None where both have the same."""
    count, size = settings.max_position_embeddings, settings.d_model
    if settings.model_type == "m2m_100":
        first = settings.pad_token_id + 1
        return sinusoidal_positions(count + first, size)[first:], None
    names = (f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))
    source, target = (weights.take(name, shape=(count + _OFFSET, size))[_OFFSET:] for name in names)
    return source, target


def _network(weights: NamedWeights, settings: MultilingualSettings) -> Transformer:
    positions, target_positions = _positions(weights, settings)
    with without_memory():
        network = Transformer(
            settings.d_model,
            settings.encoder_ffn_dim,
            settings.encoder_attention_heads,
            settings.encoder_layers,
            settings.decoder_layers,
            dropout=0.0,
            norm="pre",
            activation=ACTIVATIONS[settings.activation],
            embedding_scale=None if settings.scale_embedding else 1.0,
            positions=positions,
            target_positions=target_positions,
            decoder_sizes=Sizes(settings.decoder_ffn_dim, settings.decoder_attention_heads),
            embedding_norm=settings.model_type == "mbart",
        )
    copy_layers(weights, network)
    norms: dict[str, Any] = {
        "model.encoder.layer_norm": network.encoder_norm,
        "model.decoder.layer_norm": network.decoder_norm,
        "model.encoder.layernorm_embedding": network.embedding_norm,
        "model.decoder.layernorm_embedding": network.target_embedding_norm,
    }
    for name, norm in norms.items():
        weights.copy_to(name, norm)
    return network
