"""BERT (Devlin et al. 2019) and DeBERTa-v3 (He et al. 2021): encoders of texts.

`training.networks.hugging_face` reads pretrained weights.

Shapes: `B` texts, `T` tokens, `d` hidden size.
"""

from typing import Annotated, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from training.networks.disentangled import Distances
from training.networks.dropout import Dropout
from training.networks.transformer import EncoderLayer, padding_mask
from training.settings import Fraction, PositiveInt, Settings

__all__ = ["EncoderConfig", "TextEncoder"]

_STANDARD_DEVIATION = 0.02
"""Standard deviation of fresh weights (BERT's `initializer_range`)."""


class EncoderConfig(Settings):
    """Sizes of an encoder."""

    vocab_size: PositiveInt
    """Tokens."""
    hidden_size: PositiveInt = 256
    """Size of word vectors and context vectors."""
    inner_size: PositiveInt = 1024
    """Width of the feed-forward networks."""
    heads: PositiveInt = 4
    """Attention heads; they divide the hidden size."""
    layers: PositiveInt = 4
    """Transformer layers."""
    positions: PositiveInt = 512
    """Tokens of the longest text."""
    position_buckets: Annotated[int, Field(ge=2)] | None = None
    """Buckets of distances to one side, for DeBERTa's attention; None for BERT, which adds a vector of each position to
    those of words."""
    norm_epsilon: Annotated[float, Field(gt=0)] = 1e-12
    """Added to variances in layer normalization."""
    dropout: Fraction = 0.1
    """On word vectors and on what sublayers add to them."""
    attention_dropout: Fraction = 0.0
    """On attention weights."""

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % self.heads:
            raise ValueError(f"hidden_size must be divisible by heads, not {self.hidden_size} and {self.heads}")
        return self


class TextEncoder(nn.Module):
    """Tokens in, a context vector for each out.

    Every text is of one segment, so a vector of the segment would be one more term of every position's vector, and
    `positions` holds the sum.
    """

    positions: nn.Parameter
    """Vectors of positions `[positions, d]`; only without `position_buckets`."""
    distances: Distances
    """Vectors of distances; only with `position_buckets`."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.words = nn.Embedding(config.vocab_size, size)
        self.relative = config.position_buckets is not None
        if config.position_buckets is None:
            self.positions = nn.Parameter(torch.empty(config.positions, size))
        else:
            self.distances = Distances(config.position_buckets, config.positions, size, config.norm_epsilon)
        self.norm = nn.LayerNorm(size, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                size,
                config.inner_size,
                config.heads,
                config.dropout,
                "post",
                activation=functional.gelu,
                norm_epsilon=config.norm_epsilon,
                attention_dropout=config.attention_dropout,
                disentangled=self.relative,
            )
            for _ in range(config.layers)
        )
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Initialize weights as BERT does."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=_STANDARD_DEVIATION)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.distances.vectors if self.relative else self.positions, std=_STANDARD_DEVIATION)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens `[B, T]`, lengths `[B]` -> context vectors `[B, T, d]`; those behind a text's length mean nothing."""
        hidden, relative = self.embed(tokens), None
        if self.relative:
            vectors, buckets = self.distances(tokens.shape[1])
            relative = self.dropout(vectors), buckets
        mask = padding_mask(lengths, tokens.shape[1])
        for layer in self.encoder_layers():
            hidden = layer(hidden, mask, relative)
        return hidden

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the inputs of the first layer: `[B, T]` -> `[B, T, d]`."""
        words = self.words(tokens)
        return self.dropout(self.norm(words if self.relative else words + self.positions[: tokens.shape[1]]))

    def encoder_layers(self) -> list[EncoderLayer]:
        """Return the Transformer layers."""
        return [layer for layer in self.layers if isinstance(layer, EncoderLayer)]
