"""BERT (Devlin et al. 2019): an encoder of texts. `training.networks.hugging_face` reads pretrained weights.

Shapes: `B` texts, `T` tokens, `d` hidden size.
"""

from typing import Annotated, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

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

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.words = nn.Embedding(config.vocab_size, size)
        self.positions = nn.Parameter(torch.empty(config.positions, size))
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
        nn.init.normal_(self.positions, std=_STANDARD_DEVIATION)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens `[B, T]`, lengths `[B]` -> context vectors `[B, T, d]`; those behind a text's length mean nothing."""
        hidden = self.dropout(self.norm(self.words(tokens) + self.positions[: tokens.shape[1]]))
        mask = padding_mask(lengths, tokens.shape[1])
        for layer in self.encoder_layers():
            hidden = layer(hidden, mask)
        return hidden

    def encoder_layers(self) -> list[EncoderLayer]:
        """Return the Transformer layers."""
        return [layer for layer in self.layers if isinstance(layer, EncoderLayer)]
