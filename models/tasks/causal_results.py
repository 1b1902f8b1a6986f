"""Queries and results of causal language models of subword tokens. All log-probabilities are base e."""

import math
from dataclasses import dataclass
from typing import ClassVar

from models.tasks.model import SinglePart, TopKQuery
from models.text.words import Span

__all__ = ["NextToken", "NextTokens", "NextTokensQuery", "ScoreTextQuery", "ScoredToken", "TextScore"]


@dataclass(frozen=True, slots=True)
class NextToken:
    """A candidate: a token of the vocabulary."""

    word: str
    """Its text, with the space before a word; U+FFFD for parts of a character, the spelling of a special token."""
    token: int
    """Its id."""
    log_probability: float
    """Natural logarithm of its probability."""
    sentence_end: bool
    """Whether it is the end of a text."""

    @property
    def probability(self) -> float:
        """Return the probability of the token."""
        return math.exp(self.log_probability)


@dataclass(frozen=True, slots=True)
class NextTokens:
    """The next tokens after a context, most probable first."""

    unit: ClassVar[str] = "token"
    """What `words` are."""
    unknown_probability: ClassVar[float] = 0.0
    """Probability of what the vocabulary does not have: every text has tokens."""
    components: ClassVar[tuple[object, ...]] = ()
    """Weights of a mixture's components, of which there are none."""

    context: str
    """The context as it was given."""
    words: tuple[NextToken, ...]
    """The most probable tokens."""
    unknown: tuple[str, ...]
    """The pieces of the context that are outside the vocabulary; none for vocabularies of bytes."""
    entropy: float
    """Entropy of the whole distribution, in nats."""
    truncated: int | None = None
    """Tokens of the context that `truncate` left out, an estimate for a very long one; None where it was not cut."""


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """One token of a scored text."""

    sentence_end: ClassVar[bool] = False
    """Whether it is the end of the sentence, which is not scored."""

    word: str
    """Its text, with the space before a word; U+FFFD for parts of a character."""
    log_probability: float | None
    """None for the first token of a text that the model reads nothing before."""
    unknown: bool
    """Whether this piece of the text is outside the vocabulary."""
    start: int | None = None
    """Its first character in the text; None for a text that was given as token ids."""
    end: int | None = None
    """The character after its last one."""
    rank: int | None = None
    """Where asked for: 1 for the most probable token."""
    entropy: float | None = None
    """Where asked for: the entropy of the distribution that the token is drawn from, in nats."""
    alternatives: tuple[NextToken, ...] = ()
    """Where asked for: the most probable tokens instead, the token itself among them where it is one."""

    @property
    def scored(self) -> bool:
        """Return whether the token has a probability."""
        return self.log_probability is not None


@dataclass(frozen=True, slots=True)
class TextScore:
    """Log-probability of a text, without an end."""

    text: str
    """The text as it was given."""
    tokens: tuple[ScoredToken, ...]
    """Its tokens."""
    truncated: int | None = None
    """Tokens of the text that `truncate` left out, an estimate for a very long text; None where it was not cut."""

    @property
    def log_probability(self) -> float:
        """Sum over the scored tokens."""
        return math.fsum(self._scores())

    @property
    def perplexity(self) -> float:
        """Perplexity per scored token; infinite on overflow, and where no token is scored."""
        scores = self._scores()
        try:
            return math.exp(-math.fsum(scores) / len(scores)) if scores else math.inf
        except OverflowError:
            return math.inf

    def _scores(self) -> list[float]:
        return [token.log_probability for token in self.tokens if token.log_probability is not None]


@dataclass(frozen=True, slots=True)
class NextTokensQuery(TopKQuery):
    """A checked and tokenized context."""

    context: str
    tokens: tuple[int, ...]
    """What the network reads, the start token included; never empty."""
    top_k: int
    unknown: tuple[str, ...] = ()
    """The pieces of the context that are outside the vocabulary."""
    truncated: int | None = None
    """Tokens of the context that were left out."""

    @property
    def length(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class ScoreTextQuery(SinglePart):
    """A checked and tokenized text."""

    text: str
    tokens: tuple[int, ...]
    """Its tokens, without the start; never empty."""
    spans: tuple[Span, ...] = ()
    """First character and the one after the last, of each token; empty for a text that was given as token ids."""
    explain: int = 0
    """Tokens to return instead of each token, with its rank and the entropy before it."""
    truncated: int | None = None
    """Tokens of the text that were left out."""

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def result_items(self) -> int:
        """Number of tokens of the result and of tokens instead of them."""
        return self.length * (1 + self.explain)
