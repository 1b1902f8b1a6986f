"""Queries and results of causal language models of subword tokens. All log-probabilities are base e."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from models.backend import Array
from models.tasks.model import SinglePart, TopKQuery
from models.tasks.word_sets import WordCoverage
from models.text.words import Span

__all__ = [
    "NextSubwords",
    "NextToken",
    "NextTokens",
    "NextTokensQuery",
    "ScoreTextQuery",
    "ScoredToken",
    "ScoredWindow",
    "ScoredWord",
    "SpelledWord",
    "StridedTextQuery",
    "TextScore",
    "TextWindow",
]


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
    calibration_examples: int | None = None
    """Examples that a set was calibrated on; None where no coverage was chosen."""


@dataclass(frozen=True, slots=True)
class SpelledWord:
    """A candidate: a word, whatever tokens spell it, or the end of the text."""

    word: str
    """The word; the spelling of the end token for the end."""
    probability: float
    """Its probability, given that the context's last word has ended: a lower bound."""
    upper_bound: float
    """The largest probability that it may have."""
    sentence_end: bool
    """Whether it is the end of the text, without another word."""

    @property
    def log_probability(self) -> float:
        """Return the natural logarithm of the probability."""
        return math.log(self.probability)


@dataclass(frozen=True, slots=True)
class NextSubwords:
    """The next words after a context, all tokens that spell them summed, most probable first."""

    unit: ClassVar[str] = "word"
    """What `words` are."""
    unknown_probability: ClassVar[float] = 0.0
    """Probability of what the vocabulary does not have: every text has tokens."""
    components: ClassVar[tuple[object, ...]] = ()
    """Weights of a mixture's components, of which there are none."""
    entropy: ClassVar[float | None] = None
    """The entropy of words is not known: most of them are not searched."""

    context: str
    """The context as it was given."""
    words: tuple[SpelledWord, ...]
    """The most probable words."""
    unknown: tuple[str, ...]
    """The pieces of the context that are outside the vocabulary; none for vocabularies of bytes."""
    probability_left: float
    """Probability of the continuations that were not searched."""
    certain: bool
    """Whether no other word can be among these, and their order is right."""
    truncated: int | None = None
    """Tokens of the context that `truncate` left out, an estimate for a very long one; None where it was not cut."""
    calibration_examples: int | None = None
    """Examples that a set was calibrated on; None where no coverage was chosen."""


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
    """1 for the most probable token; None where it was not asked for."""
    entropy: float | None = None
    """Where asked for: the entropy of the distribution that the token is drawn from, in nats."""
    alternatives: tuple[NextToken, ...] = ()
    """Where asked for: the most probable tokens instead, the token itself among them where it is one."""

    @property
    def scored(self) -> bool:
        """Return whether the token has a probability."""
        return self.log_probability is not None


@dataclass(frozen=True, slots=True)
class ScoredWord:
    """A word of a scored text, with the value of its own tokens, corrected for where words end."""

    word: str
    """The word, without white space around it; several words that share a token."""
    start: int
    """Its first character in the text."""
    end: int
    """The character after its last one."""
    tokens: Span
    """Its first token, those of white space before it included, and the one after its last."""
    log_probability: float | None
    """None for the first word of a text that the model reads nothing before."""
    entropy: float | None = None
    """Where asked for: the entropy of the distribution that the first of `tokens` is drawn from, in nats."""

    @property
    def token_count(self) -> int:
        """Return the number of its tokens, those of white space before it included."""
        return self.tokens[1] - self.tokens[0]

    @property
    def surprisal(self) -> float | None:
        """Surprisal in bits."""
        return None if self.log_probability is None else -self.log_probability / math.log(2)


@dataclass(frozen=True, slots=True)
class TextScore:
    """Log-probability of a text, without an end."""

    text: str
    """The text as it was given."""
    tokens: tuple[ScoredToken, ...]
    """Its tokens."""
    truncated: int | None = None
    """Tokens of the text that `truncate` left out, an estimate for a very long text; None where it was not cut."""
    words: tuple[ScoredWord, ...] | None = None
    """Its words, where they are asked for."""
    scored_bytes: int | None = None
    """UTF-8 bytes of the text from the first scored token to the last one; None for a text of token ids."""

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

    @property
    def bits_per_byte(self) -> float | None:
        """Negative log-probability, base 2, for each scored byte of the text; None where there is no such byte."""
        return -self.log_probability / math.log(2) / self.scored_bytes if self.scored_bytes else None

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
    words: bool = False
    """Whether words are asked for instead of tokens."""
    salt: str = ""
    """Which part of the cache may be used; see `Model.with_cache_salt`."""
    coverage: WordCoverage | None = None
    """The coverage of a set in place of the most probable words."""

    @property
    def length(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class ScoreTextQuery(SinglePart):
    """A checked and tokenized text."""

    text: str
    tokens: tuple[int, ...]
    """Its tokens, without the start."""
    spans: tuple[Span, ...] = ()
    """First character and the one after the last, of each token; empty for a text that was given as token ids."""
    explain: int = 0
    """Tokens to return instead of each token, with its rank and the entropy before it."""
    truncated: int | None = None
    """Tokens of the text that were left out."""
    words: bool = False
    """Whether the words are asked for, too."""
    before: tuple[int, ...] = ()
    """The start token, where it is read before the text; without it the first token is not scored."""
    salt: str = ""
    """Texts of one salt share beginnings; see `Model.with_cache_salt`."""

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def result_items(self) -> int:
        """Number of tokens of the result, of tokens instead of them, and of words."""
        return self.length * (1 + self.explain + self.words)


@dataclass(frozen=True, slots=True)
class TextWindow(SinglePart):
    """A part of a text that is longer than the network reads at a time."""

    query: ScoreTextQuery
    """The tokens that are read: those of the context, and those that are scored."""
    first: int
    """Tokens of the context, which other windows score."""
    last: bool
    """Whether the text ends with this window."""

    @property
    def length(self) -> int:
        return self.query.length

    @property
    def result_items(self) -> int:
        """Number of scored tokens, of tokens instead of them, and of words."""
        return (self.length - self.first) * (1 + self.query.explain + self.query.words)


@dataclass(frozen=True, slots=True)
class ScoredWindow:
    """The scored tokens of a window."""

    tokens: tuple[ScoredToken, ...]
    groups: Array
    """Log-probabilities of groups of tokens before each scored token, and of the last window after them, too."""


@dataclass(frozen=True, slots=True)
class StridedTextQuery:
    """A text that is scored window by window."""

    text: ScoreTextQuery
    """All tokens of the text."""
    windows: tuple[TextWindow, ...]

    @property
    def result_items(self) -> int:
        """Number of tokens of the result, of tokens instead of them, and of words."""
        return self.text.result_items

    def parts(self) -> Sequence[TextWindow]:
        """Return the windows."""
        return self.windows
