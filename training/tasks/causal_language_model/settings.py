"""The recipe of a causal language model."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from training.networks.causal_transformer import CausalSettings, LayerSettings, Rotary
from training.recipe import Recipe
from training.settings import Fraction, PositiveInt, Settings
from training.tasks.initial_run import initial_run
from training.tasks.language_model.settings import TextData

__all__ = ["CausalDataSettings", "CausalLanguageModelRecipe", "CausalNetworkSettings"]

_ROTARY_BASE = 10_000.0
_EPSILON = 1e-6
_INNER_MULTIPLE = 32


class CausalDataSettings(TextData):
    """The training data of a causal language model."""

    searchable = ("batch_tokens",)

    vocab_size: PositiveInt = 8000
    """Tokens of the vocabulary: the end of a text, the 256 bytes and merges of them, learnt from the training split."""
    deduplicate: bool = False
    """Whether repeated training sentences count once (development and test data are never touched)."""
    lower_case: Fraction = 0.0
    """Share of the training lines that occur a second time, in lower case: people type so."""
    context: Literal["sentence", "stream"] = "sentence"
    """`sentence`: each line is a text, and texts of similar lengths are padded to one. `stream`: the lines are parts of
    documents, and training windows hold parts of several documents, which do not see each other."""
    document_start: str | None = None
    """A regular expression that the first line of a document matches, with `context: stream`; without it the lines of a
    split are one document."""
    batch_tokens: PositiveInt = 4096
    """Positions a batch, padding included."""

    @field_validator("document_start")
    @classmethod
    def _valid_expression(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"document_start: {error}") from error
        return value

    def _ineffective(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.context == "sentence":
            yield ("document_start",), "with context: sentence"
        else:
            yield ("lower_case",), "with context: stream"


class CausalNetworkSettings(Settings):
    """The Transformer that computes the context vectors.

    It has RMSNorm before attention and feed-forward network, rotary positions and gated feed-forward networks, as in
    Llama (Touvron et al. 2023).
    """

    hidden_size: PositiveInt = 256
    """Size of the tokens' vectors and context vectors."""
    inner_size: PositiveInt | None = None
    """Width of the feed-forward networks; without it 8/3 of `hidden_size`, as a multiple of 32."""
    layers: PositiveInt = 4
    """Transformer layers."""
    heads: PositiveInt = 4
    """Heads of attention in each layer."""
    key_value_heads: PositiveInt | None = None
    """Heads of keys and values, each of which serves several heads (Ainslie et al. 2023); `heads` without it."""
    positions: Annotated[int, Field(ge=2)] = 256
    """The longest text in tokens, the start included; longer ones are cut. The exported model accepts texts of one
    token less, or of `export.max_tokens` where that is less."""
    dropout: Fraction = 0.1
    """On the tokens' vectors and on the outputs of attention and feed-forward networks."""
    tied: bool = True
    """Whether the tokens' vectors are the rows of the output layer's projection matrix."""

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(f"hidden_size must be a multiple of twice heads, {2 * self.heads}, not {self.hidden_size}")
        if self.key_value_heads is not None and self.heads % self.key_value_heads:
            raise ValueError(f"key_value_heads must divide heads, {self.heads}, and {self.key_value_heads} does not")
        return self

    def of_vocabulary(self, vocab_size: int) -> CausalSettings:
        """Return the settings of the network for so many tokens."""
        inner = -(-8 * self.hidden_size // (3 * _INNER_MULTIPLE)) * _INNER_MULTIPLE
        size = self.hidden_size // self.heads
        return CausalSettings(
            vocab_size=vocab_size,
            hidden_size=self.hidden_size,
            inner_size=self.inner_size or inner,
            heads=self.heads,
            key_value_heads=self.key_value_heads or self.heads,
            head_size=size,
            positions=self.positions,
            layers=(LayerSettings(rotary=Rotary(size=size, base=_ROTARY_BASE)),) * self.layers,
            activation="silu",
            norm="rms",
            epsilon=_EPSILON,
            gated=True,
            attention_scale=size**-0.5,
            dropout=self.dropout,
        )


class CausalLanguageModelRecipe(Recipe):
    """A causal Transformer of subword tokens."""

    task: Literal["causal-language-model"]
    data: CausalDataSettings
    network: CausalNetworkSettings = CausalNetworkSettings()
    initial: str | None = None
    """Run directory to start from: its vocabulary and its best weights. Network and output layer must be the same."""

    def sources(self) -> list[dict[str, str]]:
        """Return the data of this run, and of the run that it starts from; raises the errors of `initial_run`."""
        own = super().sources()
        earlier = [] if self.initial is None else initial_run(self.initial).recipe().sources()
        return [*own, *(each for each in earlier if each not in own)]

    @property
    def longest_piece(self) -> int:
        """Return the longest piece of a text in tokens, its end included and the start before it not.

        The exported model reads as many after the start.
        """
        return self.network.positions - 1
