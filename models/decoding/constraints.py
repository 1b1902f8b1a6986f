"""Lexically constrained beam search: phrases that every output must have.

Shapes: `K` hypotheses of a sentence, `C` candidates a hypothesis, `V` tokens of the vocabulary.

Hypotheses are grouped in banks by the number of phrases that they have or are in the middle of, and the beam is shared
by all banks that have hypotheses (dynamic beam allocation: Post and Vilar 2018, section 3; Hu et al. 2019). Banks count
phrases here, not their tokens, so that a beam of five is enough for several phrases. The tokens that begin or continue
a phrase are candidates of each step, besides the most probable ones.

A phrase that the model finds unlikely would be put where it disturbs least, such as after the end of the sentence. So
where the attention of a step is known, the phrase stands in for what the model would write of its source: a token that
begins it has a log-probability between its own and that of the most probable token, by the attention to the phrase's
source, and so have those that continue it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from models.backend import Array

__all__ = [
    "MAX_PHRASES",
    "NUM_CANDIDATES",
    "Choice",
    "Constraints",
    "Continuation",
    "Phrase",
    "Progress",
    "Step",
    "Variant",
    "WordTokens",
]

MAX_PHRASES = 10
"""Largest number of phrases that one output must have."""
NUM_CANDIDATES = 16
"""Candidates of each hypothesis that are asked for where a sentence has constraints. The log-probability of a token
that is not among them is estimated; more candidates take more time."""
_LEAST_ATTENTION = 0.2
"""Attention to the source of a phrase from which on it stands in for what the model would write."""
_REPLACES = 1.0
"""Weight of the log-probability of the most probable token, at full attention, in that of a phrase's token."""


@dataclass(frozen=True, eq=False, slots=True)
class WordTokens:
    """What the tokens of a vocabulary are within words."""

    continues: bytes
    """1 for each token that continues the word before it, 0 for others: `[V]`."""
    opens: bytes
    """1 for each token after which a word may follow without a space, such as an opening bracket: `[V]`."""
    blank: bytes
    """1 for each token that has neither letters nor digits: `[V]`."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One sequence of tokens that a phrase may be written as."""

    tokens: tuple[int, ...]
    attached: bool = False
    """Whether it begins without a space, and so only after a token that `opens`."""
    first: bool | None = None
    """Whether it is only for the beginning of the output, or only for elsewhere; None for both."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase that an output must have, as one of its variants."""

    variants: tuple[Variant, ...]
    inflected: bool = False
    """Whether its last word may go on with other tokens."""
    source: tuple[int, ...] = ()
    """Positions of the source tokens that it stands for, where they are known."""

    def __post_init__(self) -> None:
        if not self.variants or not all(each.tokens for each in self.variants):
            raise ValueError("a phrase must have at least one variant, and a variant at least one token")


class Progress(NamedTuple):
    """The phrases that a hypothesis has, and those that it is in the middle of."""

    met: int = 0
    """Bit i says whether it has phrase i."""
    active: tuple[tuple[int, int, int], ...] = ()
    """Phrase, variant and number of tokens of the phrases that it is in the middle of."""
    pending: int = 0
    """Phrases that were completed by the last token, and whose word must end there."""
    begun: bool = False
    """Whether it has letters or digits."""
    after_opening: bool = False
    """Whether a word may follow without a space."""
    credit: float = 0.0
    """What the phrases that it is in the middle of have added to its log-probability."""

    @property
    def bank(self) -> int:
        """The number of phrases that it has or is in the middle of."""
        return self.met.bit_count() + bool(self.active)


class Continuation(NamedTuple):
    """A hypothesis with one more token."""

    score: float
    """Log-probability with the token."""
    origin: int
    """Index of the hypothesis that is extended."""
    token: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome of a step of one sentence."""

    kept: list[Continuation]
    """The continuations that live on, at most K."""
    complete: list[Continuation]
    """Those that end with all phrases."""
    incomplete: list[Continuation]
    """Those that end without some phrase: outputs where none with all phrases is found."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """The phrases that an output must have. Raises `ValueError` for none, or too many."""

    phrases: tuple[Phrase, ...]
    words: WordTokens = field(compare=False, repr=False)
    _first: frozenset[int] = field(init=False, compare=False, repr=False)
    """Tokens that begin a phrase."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.phrases) <= MAX_PHRASES:
            raise ValueError(f"constraints must have 1 to {MAX_PHRASES} phrases, not {len(self.phrases)}")
        first = frozenset(variant.tokens[0] for each in self.phrases for variant in each.variants)
        object.__setattr__(self, "_first", first)

    @property
    def guided(self) -> bool:
        """Whether the search needs the attention of steps."""
        return any(each.source for each in self.phrases)

    @property
    def all_met(self) -> int:
        return (1 << len(self.phrases)) - 1

    def missing(self, progress: Progress) -> int:
        """Return how many phrases a hypothesis does not have."""
        return len(self.phrases) - progress.met.bit_count()

    def after(self, progress: Progress, token: int) -> Progress:
        """Return the progress of a hypothesis with one more token."""
        begun = progress.begun or not self.words.blank[token]
        met, pending = progress.met, 0
        if not progress.active and not progress.pending and token not in self._first:
            return Progress(met, (), 0, begun, bool(self.words.opens[token]))
        if progress.pending and self.words.continues[token]:
            met &= ~progress.pending
        active: list[tuple[int, int, int]] = []
        for phrase, variant, done in (*progress.active, *self._beginnings(progress, met)):
            tokens = self.phrases[phrase].variants[variant].tokens
            if tokens[done] != token or met >> phrase & 1:
                continue
            if done + 1 < len(tokens):
                active.append((phrase, variant, done + 1))
                continue
            met |= 1 << phrase
            pending |= 0 if self.phrases[phrase].inflected else 1 << phrase
        active = [each for each in active if not met >> each[0] & 1]
        return Progress(met, tuple(active), pending, begun, bool(self.words.opens[token]))

    def _beginnings(self, progress: Progress, met: int) -> Iterable[tuple[int, int, int]]:
        """Yield the variants that may begin with the next token."""
        for phrase, each in enumerate(self.phrases):
            if met >> phrase & 1:
                continue
            for variant, form in enumerate(each.variants):
                if form.attached and not progress.after_opening:
                    continue
                if form.first is None or form.first is not progress.begun:
                    yield phrase, variant, 0

    def required(self, progress: Progress, *, may_begin: bool = True) -> dict[int, int | None]:
        """Return the tokens that continue a phrase, or that begin one, with its number, where one `may_begin`."""
        found: dict[int, int | None] = {}
        if progress.met == self.all_met:
            return found
        for phrase, variant, done in self._beginnings(progress, progress.met) if may_begin else ():
            found[self.phrases[phrase].variants[variant].tokens[done]] = phrase
        for phrase, variant, done in progress.active:
            found[self.phrases[phrase].variants[variant].tokens[done]] = None
        return found

    def choose(self, step: "Step", beam_size: int, end: int) -> Choice:
        """Choose the hypotheses of the next step; `end` is the end token."""
        found = self._continuations(step, beam_size)
        complete, incomplete = [], []
        banks: dict[int, list[Continuation]] = {}
        num_met = 0
        for place, each in enumerate(found):
            met = each.progress.met == self.all_met
            if each.token != end:
                banks.setdefault(each.progress.bank, []).append(each)
            elif met and num_met < beam_size:
                complete.append(each)
            elif place < beam_size:
                incomplete.append(each)
            num_met += met
        return Choice(_shared([banks[bank] for bank in sorted(banks, reverse=True)], beam_size), complete, incomplete)

    def _continuations(self, step: "Step", beam_size: int) -> list[Continuation]:
        """Return the most probable continuations, and those of which each bank may need some, best first."""
        width = step.values.shape[1]
        best = np.argsort(-step.values, axis=None, kind="stable")[: 2 * beam_size].tolist()
        best += [place * width + rank for place in range(len(step.hypotheses)) for rank in range(min(2, width))]
        flat, tokens = step.values.reshape(-1), step.candidates.reshape(-1)
        found: dict[tuple[int, int], Continuation] = {}
        for origin, (score, progress, may_begin) in enumerate(step.hypotheses):
            if score > -math.inf and (required := self.required(progress, may_begin=may_begin)):
                unlisted = _unlisted(step.log_probabilities[origin], len(self.words.blank))
                listed = step.candidates[origin].tolist()
                for token, phrase in required.items():
                    known = step.log_probabilities[origin, listed.index(token)] if token in listed else unlisted
                    found[origin, token] = self._required(step, origin, token, phrase, float(known))
        for place in best:
            origin, token, score = place // width, int(tokens[place]), float(flat[place])
            if (origin, token) not in found and score > -math.inf:
                progress = step.hypotheses[origin][1]
                # Without the rest of the phrase, what its beginning has added is not deserved.
                found[origin, token] = Continuation(score - progress.credit, origin, token, self.after(progress, token))
        return sorted(found.values(), key=lambda each: -each.score)

    def _required(self, step: "Step", origin: int, token: int, phrase: int | None, own: float) -> Continuation:
        """Return the continuation of a hypothesis by a token of a phrase, of that log-probability.

        The number of the phrase says that the token begins it.
        """
        score, progress, _ = step.hypotheses[origin]
        share = 1.0 if phrase is None else self._attention(step, origin, phrase)
        gained = (
            max(0.0, _REPLACES * share * (float(step.log_probabilities[origin, 0]) - own))
            if share >= _LEAST_ATTENTION
            else 0.0
        )
        after = self.after(progress, token)
        if after.active:
            after = after._replace(credit=progress.credit + gained)
        return Continuation(score + own + gained, origin, token, after)

    def _attention(self, step: "Step", origin: int, phrase: int) -> float:
        """Return the attention of a hypothesis to the source of a phrase, in [0, 1]."""
        source = self.phrases[phrase].source
        if step.attention is None or not source:
            return 0.0
        return min(1.0, float(sum(step.attention[origin, position] for position in source)))


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """The candidates for the next token of a sentence's hypotheses."""

    hypotheses: Sequence[tuple[float, Progress, bool]]
    """Log-probability and progress of each hypothesis, and whether a word may begin."""
    log_probabilities: Array
    """Log-probabilities of the candidates of each hypothesis, best first: `[K, C]`."""
    values: Array
    """Log-probabilities of hypotheses with each candidate, minus infinity for those that are ruled out: `[K, C]`."""
    candidates: Array
    """Tokens: `[K, C]`."""
    attention: Array | None = None
    """Attention of each hypothesis to the source tokens, where it is known: `[K, S]`."""


def _unlisted(log_probabilities: Array, vocab_size: int) -> float:
    """Return the log-probability of a token that is not among the candidates, `[C]`.

    It is the mean of such tokens, by the probability that the candidates leave, and at most that of the last candidate.
    """
    rest = max(1.0 - float(np.exp(log_probabilities).sum()), 1e-9)
    others = max(1, vocab_size - len(log_probabilities))
    return min(float(log_probabilities[-1]), math.log(rest / others))


def _shared(banks: Sequence[list[Continuation]], beam_size: int) -> list[Continuation]:
    """Share the beam: each bank in turn, from the one with the most phrases, gets a place while it has candidates."""
    taken = [0] * len(banks)
    left = beam_size
    while left and any(count < len(bank) for count, bank in zip(taken, banks, strict=True)):
        for index, bank in enumerate(banks):
            if left and taken[index] < len(bank):
                taken[index] += 1
                left -= 1
    kept = [each for count, bank in zip(taken, banks, strict=True) for each in bank[:count]]
    return sorted(kept, key=lambda each: -each.score)
