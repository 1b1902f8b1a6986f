"""The section of models that read texts by a BERT-like encoder: its sizes, and the longest text."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.bundle.contract import Contract, PositiveInt
from models.text.config import TextConfig

__all__ = ["BertNetwork", "EncoderConfig", "ImportedEncoder"]


class BertNetwork(Contract):
    """The sizes of a BERT-like text encoder."""

    kind: Literal["bert", "deberta"]
    """Kind of network: vectors of positions (`bert`), or disentangled attention (`deberta`)."""
    hidden_size: PositiveInt
    """Size of the hidden states."""
    inner_size: PositiveInt
    """Width of the feed-forward networks."""
    heads: PositiveInt
    """Attention heads."""
    layers: PositiveInt
    """Transformer layers."""
    pooling: Literal["mean", "cls"] | None = None
    """Pooled representation: the mean of the hidden states, or that of `[CLS]`; None of a model of tokens."""
    positions: PositiveInt
    """Tokens that a text may have, the special ones included."""


class ImportedEncoder(Contract):
    """An encoder of another program, as far as its sizes are known."""

    kind: Literal["imported"]
    """Kind of network."""
    architecture: str
    """Name of its class in the program that made it, or the format of its file."""
    hidden_size: PositiveInt | None = None
    """Size of the hidden states."""
    inner_size: PositiveInt | None = None
    """Width of the feed-forward networks."""
    heads: PositiveInt | None = None
    """Attention heads."""
    layers: PositiveInt | None = None
    """Transformer layers."""
    positions: PositiveInt
    """Tokens that a text may have, the special ones included."""


class EncoderConfig(TextConfig):
    """The section of a model with a text encoder."""

    network: Annotated[BertNetwork | ImportedEncoder, Field(discriminator="kind")]
    """The encoder."""

    @model_validator(mode="after")
    def _texts_fit_the_network(self) -> Self:
        if self.limits.max_tokens > self.network.positions:
            raise ValueError(f"limits.max_tokens must be at most network.positions, {self.network.positions}")
        return self
