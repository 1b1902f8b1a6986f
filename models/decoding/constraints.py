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
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    "Requirement",
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


class Requirement(NamedTuple):
    """A token of a phrase that may come next in a hypothesis."""

    phrase: int | None
    """The phrase that it begins; None for one that it continues."""
    after: Progress
    """The progress of the hypothesis with it, without credit."""
    bank: int
    """The bank of the hypothesis with it."""


class Continuation(NamedTuple):
    """A hypothesis with one more token."""

    score: float
    """Log-probability with the token."""
    origin: int
    """Index of the hypothesis that is extended."""
    token: int
    progress: Progress


_Candidate = tuple[float, int, int, Progress, int]
"""The fields of a `Continuation`, and its bank. Where the token changes nothing about phrases, the progress is still
that of the hypothesis: few candidates are chosen."""
_SCORE: Callable[[_Candidate], float] = operator.itemgetter(0)
_State = tuple[tuple[object, ...], bool]
"""Fields of a hypothesis's progress, and whether a word may begin."""


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
    all_met: int = field(init=False, compare=False, repr=False)
    """`Progress.met` of a hypothesis with all phrases."""
    _required: dict[_State, dict[int, Requirement]] = field(init=False, compare=False, repr=False, default_factory=dict)
    """What `required` has found before."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.phrases) <= MAX_PHRASES:
            raise ValueError(f"constraints must have 1 to {MAX_PHRASES} phrases, not {len(self.phrases)}")
        first = frozenset(variant.tokens[0] for each in self.phrases for variant in each.variants)
        object.__setattr__(self, "_first", first)
        object.__setattr__(self, "all_met", (1 << len(self.phrases)) - 1)

    @property
    def guided(self) -> bool:
        """Whether the search needs the attention of steps."""
        return any(each.source for each in self.phrases)

    def missing(self, progress: Progress) -> int:
        """Return how many phrases a hypothesis does not have."""
        return len(self.phrases) - progress.met.bit_count()

    def after(self, progress: Progress, token: int) -> Progress:
        """Return the progress of a hypothesis with one more token."""
        begun, opens = progress.begun or not self.words.blank[token], bool(self.words.opens[token])
        met, pending = progress.met, 0
        if not progress.active and not progress.pending and token not in self._first:
            same = begun is progress.begun and opens is progress.after_opening
            return progress if same else Progress(met, (), 0, begun, opens)
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
        return Progress(met, tuple(active), pending, begun, opens)

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

    def required(self, progress: Progress, *, may_begin: bool = True) -> Mapping[int, Requirement]:
        """Return the tokens that continue a phrase, or that begin one where one `may_begin`."""
        if progress.met == self.all_met:
            return {}
        state = progress[:5], may_begin  # without the credit
        if (found := self._required.get(state)) is None:
            phrases = self._required_phrases(progress, may_begin=may_begin)
            after = {token: self.after(progress, token) for token in phrases}
            found = {token: Requirement(phrase, after[token], after[token].bank) for token, phrase in phrases.items()}
            self._required[state] = found
        return found

    def _required_phrases(self, progress: Progress, *, may_begin: bool) -> dict[int, int | None]:
        """Return the tokens that continue a phrase, or that begin one, with its number."""
        found: dict[int, int | None] = {}
        for phrase, variant, done in self._beginnings(progress, progress.met) if may_begin else ():
            found[self.phrases[phrase].variants[variant].tokens[done]] = phrase
        for phrase, variant, done in progress.active:
            found[self.phrases[phrase].variants[variant].tokens[done]] = None
        return found

    def choose(self, step: "Step", beam_size: int, end: int) -> Choice:
        """Choose the hypotheses of the next step; `end` is the end token."""
        found = self._candidates(step)
        banks: dict[int, list[_Candidate]] = {}
        ends = []
        for place, each in enumerate(found):
            if each[2] == end:
                ends.append(place)
            elif (bank := banks.get(each[4])) is None:
                banks[each[4]] = [each]
            else:
                bank.append(each)
        kept = _shared([banks[bank] for bank in sorted(banks, reverse=True)], beam_size)
        complete, incomplete = self._ended(found, ends, beam_size) if ends else ([], [])
        return Choice([self._continuation(step, each) for each in kept], complete, incomplete)

    def _ended(
        self, found: Sequence["_Candidate"], ends: Sequence[int], beam_size: int
    ) -> tuple[list[Continuation], list[Continuation]]:
        """Return the candidates that end with all phrases, and those that end without some.

        Those count that are among the best `beam_size` candidates with all phrases, or of all.
        """
        complete, incomplete = [], []
        for place in ends:
            continuation = Continuation(*found[place][:4])
            met = [each[3].met == self.all_met for each in found[: place + 1]]
            if met[-1] and sum(met) <= beam_size:
                complete.append(continuation)
            elif place < beam_size:
                incomplete.append(continuation)
        return complete, incomplete

    def _continuation(self, step: "Step", candidate: "_Candidate") -> Continuation:
        score, origin, token, progress, _ = candidate
        before = step.hypotheses[origin][1]
        return Continuation(score, origin, token, self.after(before, token) if progress is before else progress)

    def _candidates(self, step: "Step") -> list["_Candidate"]:
        """Return the most probable continuations, and those of which each bank may need some, best first."""
        found: list[_Candidate] = []
        required: list[Mapping[int, Requirement]] = []
        states = []
        for origin, (score, progress, may_begin) in enumerate(step.hypotheses):
            required.append(self.required(progress, may_begin=may_begin) if score > -math.inf else {})
            states.append((progress, progress.bank, bool(progress.active or progress.pending)))
            for token, requirement in required[-1].items():
                found.append(self._required_candidate(step, origin, token, requirement))
        width, first, values, tokens = len(step.candidates[0]), self._first, step.values, step.candidates
        for place in step.best:
            origin, rank = divmod(place, width)
            score, token = values[place], tokens[origin][rank]
            if score == -math.inf or token in required[origin]:
                continue
            progress, bank, changes = states[origin]
            if changes or token in first:
                # Without the rest of the phrase, what its beginning has added is not deserved.
                score, progress = score - progress.credit, self.after(progress, token)
                bank = progress.bank
            found.append((score, origin, token, progress, bank))
        found.sort(key=_SCORE, reverse=True)
        return found

    def _required_candidate(self, step: "Step", origin: int, token: int, requirement: Requirement) -> "_Candidate":
        """Return the continuation of a hypothesis by a token of a phrase."""
        score, progress, _ = step.hypotheses[origin]
        phrase, after, bank = requirement
        own = step.log_probability(origin, token, len(self.words.blank))
        share = 1.0 if phrase is None else step.attention_to(self.phrases[phrase].source)[origin]
        gained = 0.0
        if share >= _LEAST_ATTENTION:
            gained = max(0.0, _REPLACES * share * (step.log_probabilities[origin][0] - own))
        if after.active:
            after = Progress(*after[:5], progress.credit + gained)
        return score + own + gained, origin, token, after, bank


@dataclass(eq=False, slots=True)
class Step:
    """The candidates for the next token of a sentence's hypotheses; lists, whose items are read faster than arrays'."""

    hypotheses: Sequence[tuple[float, Progress, bool]]
    """Log-probability and progress of each hypothesis, and whether a word may begin."""
    log_probabilities: Sequence[Sequence[float]]
    """Log-probabilities of the candidates of each hypothesis, best first: `[K, C]`."""
    candidates: Sequence[Sequence[int]]
    """Tokens: `[K, C]`."""
    listed: Sequence[float]
    """Probability of the candidates of each hypothesis together: `[K]`."""
    values: Sequence[float]
    """Log-probabilities of hypotheses with each candidate, minus infinity for those that are ruled out: `[K * C]`."""
    best: Iterable[int]
    """Indices of `values`: the best of all hypotheses, then those of each one, none of them twice."""
    attention: Array | None = None
    """Attention of each hypothesis to the source tokens, where it is known: `[K, S]`."""
    _attention_to: dict[tuple[int, ...], list[float]] = field(default_factory=dict, init=False, repr=False)

    def log_probability(self, origin: int, token: int, vocab_size: int) -> float:
        """Return the log-probability of a token after a hypothesis, an estimate where it is not among the candidates.

        That is the mean of such tokens, by the probability that the candidates leave, and at most that of the last one.
        """
        own, candidates = self.log_probabilities[origin], self.candidates[origin]
        if token in candidates:
            return own[candidates.index(token)]
        rest, others = max(1.0 - self.listed[origin], 1e-9), max(1, vocab_size - len(own))
        return min(own[-1], math.log(rest / others))

    def attention_to(self, source: tuple[int, ...]) -> list[float]:
        """Return the attention of each hypothesis to source tokens, in [0, 1]; 0 where it is not known."""
        if self.attention is None or not source:
            return [0.0] * len(self.hypotheses)
        if (found := self._attention_to.get(source)) is None:
            total: Array = sum((self.attention[:, position] for position in source[1:]), self.attention[:, source[0]])
            found = self._attention_to[source] = np.minimum(total, 1).tolist()
        return found


def _shared(banks: Sequence[list[_Candidate]], beam_size: int) -> list[_Candidate]:
    """Share the beam: each bank in turn, from the one with the most phrases, gets a place while it has candidates."""
    if len(banks) == 1:
        return banks[0][:beam_size]
    sizes, taken = [len(bank) for bank in banks], [0] * len(banks)
    left = min(beam_size, sum(sizes))
    while left:
        for index, size in enumerate(sizes):
            if left and taken[index] < size:
                taken[index] += 1
                left -= 1
    kept = [each for count, bank in zip(taken, banks, strict=True) for each in bank[:count]]
    return sorted(kept, key=_SCORE, reverse=True)
