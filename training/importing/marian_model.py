"""The weights of MarianMT models (opus-mt), in the project's own Transformer.

A Marian model is a Transformer with norms after the sublayers and none at the end of encoder and decoder, word vectors
of both languages and output layer in one matrix or in several, a bias for each output token, and sinusoidal positions.
Outputs start after the padding token, which has probability 0 as an output.

Shapes: `V` tokens, `d` hidden size.
"""

from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from training.importing.bart_weights import ACTIVATIONS, copy_layers, stored_bias
from training.importing.source import SourceDirectory
from training.importing.translation_settings import BartSettings, Size, Token
from training.importing.weights import NamedWeights, without_memory
from training.networks.transformer import Transformer
from training.networks.translation_model import TranslationModel
from training.softmax import GeneralizedSoftmax

__all__ = ["MarianSettings", "marian_positions", "read_marian"]


class MarianSettings(BartSettings):
    """The fields of `config.json` that say what the model computes; defaults are those of transformers."""

    model_type: Literal["marian"]
    vocab_size: Size = 58101
    decoder_vocab_size: Size | None = None
    activation_function: Literal["relu", "gelu", "silu", "swish"] = "gelu"
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True
    pad_token_id: Token = 58100
    eos_token_id: Token = 0
    decoder_start_token_id: Token = 58100

    @model_validator(mode="after")
    def _one_size_for_both_sides(self) -> Self:
        if self.encoder_ffn_dim != self.decoder_ffn_dim or self.encoder_attention_heads != self.decoder_attention_heads:
            raise ValueError("encoder and decoder must have equal heads and feed-forward sizes")
        if self.d_model % self.encoder_attention_heads or self.d_model % 2:
            raise ValueError("d_model must be even and divisible by the heads")
        if self.share_encoder_decoder_embeddings and self.target_size != self.vocab_size:
            raise ValueError("shared word vectors need one vocabulary")
        if max(self.pad_token_id, self.eos_token_id, self.decoder_start_token_id) >= self.target_size:
            raise ValueError(f"special tokens must be below the {self.target_size} tokens of the decoder")
        if self.eos_token_id in self.never_generated:
            raise ValueError("eos_token_id must not be one of bad_words_ids")
        return self

    @property
    def target_size(self) -> int:
        return self.decoder_vocab_size or self.vocab_size

    @property
    def never_generated(self) -> frozenset[int]:
        """Return the tokens that no output has: padding, and what `bad_words_ids` excludes by itself."""
        return super().never_generated | {self.pad_token_id}


def marian_positions(count: int, hidden_size: int) -> Tensor:
    """Return position vectors `[count, d]`: sines in the first half, cosines in the second.

    The rates fall to 10000^(2/d - 1), where those of tensor2tensor fall to 1/10000.
    """
    rates = 10_000 ** (-torch.arange(0, hidden_size, 2, dtype=torch.float64) / hidden_size)
    angles = torch.arange(count, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def read_marian(source: SourceDirectory, settings: MarianSettings) -> TranslationModel:
    """Return the model of a directory, in evaluation mode; raises `ImportRefused` where a weight is not as expected."""
    weights = NamedWeights(source.weights())
    source_vectors, target_vectors, output = _word_vectors(weights, settings)
    layer = GeneralizedSoftmax(1, settings.d_model, bias=True)
    layer.weight = output
    layer.bias = stored_bias(weights, settings.target_size, settings.never_generated)
    network = _network(weights, settings)
    for name in ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"):
        weights.tensors.pop(name, None)  # computed, and compared with transformers by the outputs
    weights.expect_none_left("Marian model")
    model = TranslationModel(
        network,
        layer,
        source_vectors=None if source_vectors is output else source_vectors,
        target_vectors=None if target_vectors is output else target_vectors,
    )
    return model.requires_grad_(False).eval()


def _word_vectors(weights: NamedWeights, settings: MarianSettings) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter]:
    """Return the word vectors of source and target `[tokens, d]`, and the output layer's matrix `[V, d]`."""
    shared, output = "model.shared.weight", "lm_head.weight"
    source, target = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
    size = (settings.target_size, settings.d_model)
    tied = [output] if settings.tie_word_embeddings else []
    if settings.share_encoder_decoder_embeddings:
        vectors = nn.Parameter(weights.take(shared, source, target, *tied, shape=size))
        sides = vectors, vectors
    else:
        sides = (
            nn.Parameter(weights.take(source, shape=(settings.vocab_size, settings.d_model))),
            nn.Parameter(weights.take(target, *tied, shape=size)),
        )
    return *sides, sides[1] if tied else nn.Parameter(weights.take(output, shape=size))


def _network(weights: NamedWeights, settings: MarianSettings) -> Transformer:
    positions = marian_positions(settings.max_position_embeddings, settings.d_model)
    with without_memory():
        network = Transformer(
            settings.d_model,
            settings.encoder_ffn_dim,
            settings.encoder_attention_heads,
            settings.encoder_layers,
            settings.decoder_layers,
            dropout=0.0,
            norm="post",
            activation=ACTIVATIONS[settings.activation],
            embedding_scale=None if settings.scale_embedding else 1.0,
            positions=positions,
        )
    copy_layers(weights, network)
    return network
