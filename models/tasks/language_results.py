"""Queries and results of language models. All log-probabilities are base e."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from models.tasks.language_state import Prefix
from models.tasks.model import SinglePart, TopKQuery
from models.tasks.word_sets import WordCoverage
from models.text.prefix_cache import PrefixCache
from models.text.tokenization import END

__all__ = [
    "Component",
    "NextWord",
    "NextWords",
    "NextWordsQuery",
    "Prefix",
    "ScoreQuery",
    "SentenceScore",
    "TokenScore",
]


@dataclass(frozen=True, slots=True)
class NextWord:
    """A candidate: a word of the vocabulary, or the sentence end, which is spelled `</s>`."""

    word: str
    """The word, or `</s>`."""
    log_probability: float
    """Natural logarithm of its probability."""

    @property
    def sentence_end(self) -> bool:
        """Return whether it is the sentence end."""
        return self.word == END

    @property
    def probability(self) -> float:
        """Return the probability of the word."""
        return math.exp(self.log_probability)


@dataclass(frozen=True, slots=True)
class Component:
    """A mixture component and its weight in one context."""

    kernel: str
    """Name of its kernel, or of a component that is none, such as `cache`."""
    weight: float
    """Its weight, 0 to 1."""
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    """Values of its hyperparameters, by name."""


@dataclass(frozen=True, slots=True)
class NextWords:
    """The next words after a context, most probable first."""

    context: str
    """The context as it was given."""
    words: tuple[NextWord, ...]
    """Fewer than asked for where a sparse-softmax gives fewer a probability."""
    unknown: tuple[str, ...]
    """The words of the context that are outside the vocabulary, which the model cannot tell apart."""
    unknown_log_probability: float
    """Log-probability of any word outside the vocabulary, which is never among the words."""
    entropy: float
    """Entropy of the whole distribution, in nats; words outside the vocabulary are one outcome."""
    components: tuple[Component, ...]
    """The components of the output layer and their weights; a single one without a mixture."""
    prefix: Prefix
    """To continue from without reading the context again."""
    truncated: int | None = None
    """Tokens of the context that `truncate` left out, an estimate for a very long one; None where it was not cut."""
    calibration_examples: int | None = None
    """Examples that a set was calibrated on; None where no coverage was chosen."""

    @property
    def unknown_probability(self) -> float:
        """Return the probability of any word outside the vocabulary; with all words it sums to 1."""
        return math.exp(self.unknown_log_probability)


@dataclass(frozen=True, slots=True)
class TokenScore:
    """One word of a scored text, the sentence end being the last."""

    word: str
    """The word as the text spells it, or `</s>`."""
    log_probability: float
    """Minus infinity for a word of probability 0, which a sparse-softmax gives all but the best."""
    unknown: bool
    """Whether the word is outside the vocabulary."""
    rank: int | None = None
    """Where asked for: 1 for the most probable word; none for a word of probability 0."""
    entropy: float | None = None
    """Where asked for: the entropy of the distribution that the word is drawn from, in nats."""
    alternatives: tuple[NextWord, ...] = ()
    """Where asked for: the most probable words instead, the word itself among them where it is one."""
    best: tuple[tuple[int, float], ...] = ()
    """Where asked for: ids and log-probabilities of the most probable outcomes, of which `<unk>` is one, by rank."""

    @property
    def sentence_end(self) -> bool:
        """Return whether it is the sentence end."""
        return self.word == END and not self.unknown


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """Log-probability of a text with its end."""

    text: str
    """The text as it was given."""
    tokens: tuple[TokenScore, ...]
    """Its words and the sentence end."""
    truncated: int | None = None
    """Tokens of the text that `truncate` left out, an estimate for a very long text; None where it was not cut."""

    @property
    def log_probability(self) -> float:
        """Sum over the tokens; minus infinity where a token has probability 0."""
        return math.fsum(token.log_probability for token in self.tokens)

    @property
    def perplexity(self) -> float:
        """Perplexity per token; infinite where a token has probability 0, or on overflow."""
        try:
            return math.exp(-self.log_probability / len(self.tokens))
        except OverflowError:
            return math.inf


_WORD_BYTES = 150
"""Rough size of a cached next word, in bytes."""
_CACHE_SHARE = 16
"""A result keeps its words in the prefix cache where they take no more than 1 / 16 of it."""


@dataclass(frozen=True, slots=True)
class NextWordsQuery(TopKQuery):
    """A checked and tokenized context."""

    context: str
    tokens: tuple[int, ...]
    """What the network reads; never empty."""
    top_k: int
    after: Prefix | None = None
    read: bytes = b""
    """All that the network will have read then, from the start of the text, packed; empty where a caller's prefix hides
    it."""
    text: str | None = None
    """The text of these tokens, where longer texts that begin with it are known to begin with these tokens too."""
    unknown: tuple[str, ...] = ()
    """The words of the context that are outside the vocabulary."""
    known: NextWords | None = None
    """The result, where it was computed before."""
    salt: str = ""
    """Of the entries of the prefix cache that the result is kept among."""
    truncated: int | None = None
    """Tokens of the context that were left out."""
    coverage: WordCoverage | None = None
    """The coverage of a set in place of the most probable words."""

    @property
    def length(self) -> int:
        return len(self.tokens)

    def parts(self) -> tuple[Self, ...]:
        """Return the query itself, unless its result is known."""
        return (self,) if self.known is None else ()

    def keep(self, result: NextWords, cache: PrefixCache[NextWords]) -> None:
        """Keep the result for later queries, unless it is not known what all was read."""
        if self.read:
            state = result.prefix.nbytes
            most = (cache.max_bytes // _CACHE_SHARE - state) // _WORD_BYTES
            words = result.words if len(result.words) <= most else ()  # the state alone saves most of the work
            kept = replace(result, context="", words=words, unknown=(), truncated=None)
            size = state + _WORD_BYTES * len(words)
            cache.put(self.read, kept, size, self.text, self.unknown, salt=self.salt)


@dataclass(frozen=True, slots=True)
class ScoreQuery(SinglePart):
    """A checked and tokenized sentence."""

    text: str
    tokens: tuple[int, ...]
    """The words, without the end."""
    words: tuple[str, ...]
    """Their spelling in the text."""
    explain: int = 0
    """Words to return instead of each token, with its rank and the entropy before it."""
    salt: str = ""
    """Only texts of one salt share prefixes, those in the prefix cache and those of a batch."""
    truncated: int | None = None
    """Tokens of the sentence that were left out."""

    @property
    def length(self) -> int:
        return len(self.tokens) + 1

    @property
    def result_items(self) -> int:
        """Number of tokens of the result and of words instead of them."""
        return self.length * (1 + self.explain)
