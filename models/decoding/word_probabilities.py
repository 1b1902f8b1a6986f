"""Probabilities of words under a causal model over subwords.

The text of a token sequence is the concatenation of its tokens' bytes, and an end token ends it. After a context of
tokens `c`, the model draws a continuation; `Y` is its text. `models.text.word_vocabulary` divides `Y` into words: `S`
is its longest beginning of separators, `W` the longest run of letters (or of punctuation marks) that follows. The *next
word* is `u = S W`, leading separators included, and it is complete where a character of another class, or the end of
the text, follows.

The events. Where the context ends in a word, that word may go on: `B` is the event that it does not, so that `Y` begins
with a separator, with a character of another class than the context's last one, or is empty as the text ends. Elsewhere
(no context, or one that ends with a separator) `B` is certain. The measured event is

    P(u | c, B) = P(Y begins with u, and what follows ends u | c) / P(B | c)

It is a sum over **all** token sequences that spell `u`, and over those whose last token goes on past the end of `u`.
The events of different `u`, the event that the text ends without another word, and the event that the word never ends
(or was not searched to its end) are disjoint and exhaust `B`: their probabilities sum to 1. The context is given as
tokens; other tokenizations of the context are not summed over.

For a text that is given as tokens there is the *canonical* value of Pimentel and Meister (2024, "How to Compute the
Probability of a Word", section 4; the same correction in Oh and Schuler 2024, "Leading Whitespaces of Language Models'
Subword Vocabulary Pose a Confound for Calculating Word Probabilities"), of those very tokens `t` of the word:

    log P(t | c) + log P(B | c, t) - log P(B | c)

where `P(B | c)` is the mass of tokens that begin a word, or end the text. It needs one model call per token. It is at
most the exact value, except that tokens of undecided bytes count as beginnings of words here. Summed over the words of
a text, the terms of `B` cancel: with `n` the end of the last word and `r` the tokens after it (separators),

    sum over words = log P(text up to n | c) + log P(B | text up to n) - log P(B | c)
    end term       = log P(r, end | text up to n) - log P(B | text up to n)

so that the sum of both is the text's own log-probability, end included, minus `log P(B | c)`, which is 0 at the
beginning of a text.

Shapes: `B` prefixes of a batch, `V` tokens, `T` tokens of a text. All logarithms are natural, unless in bits.
"""

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.backend import Array
from models.text.word_vocabulary import State, WordVocabulary
from models.text.words import Span

__all__ = [
    "BatchedRows",
    "CausalModel",
    "TextScore",
    "TokenizedText",
    "WordProbability",
    "WordScore",
    "log_sum",
    "log_word_begins",
    "score_rows",
    "score_words",
    "word_begins",
    "word_probabilities",
]

Prefix = tuple[int, ...]


class CausalModel(Protocol):
    """A language model over subwords."""

    def log_probabilities(self, prefixes: Sequence[Prefix]) -> Array:
        """Return the natural log-probability of each next token after each prefix, `[B, V]`."""


class BatchedRows:
    """Calls a model with a bounded number of prefixes, and counts them."""

    def __init__(self, model: CausalModel, batch_size: int) -> None:
        """Raise `ValueError` for a batch size below 1."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        self._model = model
        self.batch_size = batch_size
        self.count = 0
        """Prefixes computed."""

    def __call__(self, prefixes: Sequence[Prefix]) -> Iterator[Array]:
        """Yield the row of each prefix in float64, `[V]`."""
        for first in range(0, len(prefixes), self.batch_size):
            batch = prefixes[first : first + self.batch_size]
            self.count += len(batch)
            yield from np.asarray(self._model.log_probabilities(batch), np.float64)


def log_sum(values: Array) -> float:
    """Return the logarithm of the sum of exponentials; minus infinity for no values."""
    largest = float(values.max(initial=-math.inf))
    return largest if math.isinf(largest) else largest + math.log(float(np.exp(values - largest).sum()))


@dataclass(frozen=True, slots=True)
class WordProbability:
    """The probability of one next word, all tokenizations included."""

    text: bytes
    """The word with its leading separators."""
    log_probability: float
    """Of the tokenizations that were summed: a lower bound, and the value itself where `exact`."""
    upper_bound: float
    """The log-probability if all that was not expanded were this word's."""
    tokenizations: int
    """Token sequences that spell the word, or the word and what ends it in the same token, and have been summed."""

    @property
    def exact(self) -> bool:
        return self.log_probability == self.upper_bound


def log_word_begins(rows: BatchedRows, vocabulary: WordVocabulary, context: Prefix, longest: float = math.inf) -> float:
    """Return `log P(B | c)`: that the context's last word does not go on; 0 where no word may go on.

    It is exact: tokens that are undecided are followed until the character is complete; where that takes prefixes of
    more than `longest` tokens they count as beginnings of words. Raises `ValueError` where the probability is 0, so
    that no word has a probability given `B`.
    """
    state = vocabulary.state(context)
    if state is State.LEADING:
        return 0.0
    masses, waiting = [-math.inf], [(0.0, context, b"")]
    while waiting:
        before, waiting = waiting, []
        for (mass, prefix, undecided), row in zip(before, rows([each[1] for each in before]), strict=True):
            then = vocabulary.continuation(state, undecided)
            begins = then.going_on | then.over | then.straddling
            for token in then.undecided:
                piece = undecided + vocabulary.pieces[token]
                if vocabulary.boundaries.read(state, piece).state is state:  # not even the first character is known
                    begins[token] = len(prefix) >= longest
                    if not begins[token] and row[token] > -math.inf:
                        waiting.append((mass + float(row[token]), (*prefix, token), piece))
            if vocabulary.boundaries.read(state, undecided, final=True).state is not None:
                begins |= vocabulary.ends_text
            masses.append(mass + log_sum(row[begins]))
    whole = log_sum(np.array(masses))
    if whole == -math.inf:
        raise ValueError("the last word of the context goes on with probability 1")
    return whole


class _Target:
    """A word whose tokenizations are summed."""

    def __init__(self, vocabulary: WordVocabulary, start: State, text: bytes) -> None:
        reading = vocabulary.boundaries.read(start, text, final=True)
        if reading.over or reading.end != len(text) or reading.state not in (State.LETTERS, State.MARKS):
            raise ValueError(f"{text!r} is not one next word, with the white space before it, after this context")
        self.text = text
        self._vocabulary, self._state = vocabulary, reading.state
        self.found: list[float] = []
        self.left: dict[Prefix, float] = {}
        self.tokenizations = 0

    def _add(self, mass: float) -> None:
        if mass > -math.inf:
            self.found.append(mass)
            self.tokenizations += 1

    def expand(self, mass: float, text: bytes, row: Array) -> Iterator[tuple[int, bytes]]:
        """Add the mass of all that completes the word; yield the tokens after which it may still be completed."""
        if len(text) < len(self.text):
            yield from self._expand_within(mass, self.text[len(text) :], text, row)
            return
        undecided = text[len(self.text) :]
        vocabulary, then = self._vocabulary, self._vocabulary.continuation(self._state, undecided)
        over = then.over
        final = vocabulary.boundaries.read(self._state, undecided, final=True)
        if final.end == 0:
            over = over | vocabulary.ends_text
        self._add(mass + log_sum(row[over]))
        for token in then.undecided:
            piece = undecided + vocabulary.pieces[token]
            if vocabulary.boundaries.read(self._state, piece).end == 0:
                yield token, text + vocabulary.pieces[token]

    def _expand_within(self, mass: float, rest: bytes, text: bytes, row: Array) -> Iterator[tuple[int, bytes]]:
        for token, size in self._vocabulary.beginnings(rest):
            yield token, text + rest[:size]
        for token, after in self._vocabulary.extensions(rest):
            reading = self._vocabulary.boundaries.read(self._state, after)
            if reading.end == 0 and reading.over:
                self._add(mass + float(row[token]))
            elif reading.end == 0:
                yield token, self.text + after

    def result(self, begins: float) -> WordProbability:
        found = log_sum(np.array(self.found))
        value = upper = min(0.0, found - begins)
        if self.left:
            most = np.logaddexp(found, log_sum(np.array(list(self.left.values()))))
            upper = max(value, min(0.0, float(most) - begins))
        return WordProbability(self.text, value, upper, self.tokenizations)


def word_probabilities(
    model: CausalModel,
    vocabulary: WordVocabulary,
    context: Sequence[int],
    words: Sequence[bytes | str],
    *,
    max_prefixes: int = 4096,
    batch_size: int = 32,
) -> list[WordProbability]:
    """Return the probability of each word as the next one, summed over all its tokenizations.

    `words` are texts as they follow the context, such as `" cat"`: with the white space before them. The number of
    tokenizations grows exponentially with a word's length; the most probable ones are summed first, and after
    `max_prefixes` prefixes the rest is only bounded (`exact` is False). Words share the prefixes of their tokens.
    Raises `ValueError` for a text that is not one word after this context, for a context that ends within a character
    that may be a separator or punctuation, and for one whose last word cannot be over.
    """
    rows, prefix = BatchedRows(model, batch_size), tuple(context)
    start = vocabulary.state(prefix)
    texts = [word.encode() if isinstance(word, str) else bytes(word) for word in words]
    targets = [_Target(vocabulary, start, text) for text in texts]
    begins = log_word_begins(rows, vocabulary, prefix) if targets else 0.0
    heap: list[tuple[float, Prefix, int, bytes]] = []
    for index, target in enumerate(targets):
        target.left[prefix] = 0.0
        heap.append((0.0, prefix, index, b""))
    while heap and (room := max_prefixes - rows.count) > 0:
        batch = _best(heap, min(batch_size, room))
        for (tokens, entries), row in zip(batch.items(), rows(list(batch)), strict=True):
            for mass, index, text in entries:
                target = targets[index]
                del target.left[tokens]
                for token, after in target.expand(mass, text, row):
                    if (then := mass + float(row[token])) > -math.inf:
                        target.left[(*tokens, token)] = then
                        heapq.heappush(heap, (-then, (*tokens, token), index, after))
    return [target.result(begins) for target in targets]


def _best(heap: list[tuple[float, Prefix, int, bytes]], count: int) -> dict[Prefix, list[tuple[float, int, bytes]]]:
    """Remove the entries of the most probable prefixes, at most `count` of them, each with all of its targets."""
    batch: dict[Prefix, list[tuple[float, int, bytes]]] = {}
    while heap and (len(batch) < count or heap[0][1] in batch):
        mass, tokens, index, text = heapq.heappop(heap)
        batch.setdefault(tokens, []).append((-mass, index, text))
    return batch


@dataclass(frozen=True, slots=True)
class WordScore:
    """A word of a text, with the canonical value of its own tokens."""

    text: str
    """The word without leading separators; several words where a token holds the end of one and the next one."""
    span: Span
    """Its first character in the text, and the one after its last."""
    tokens: Span
    """Its first token, those of leading separators included, and the one after its last."""
    log_probability: float
    """`log P(tokens) + log P(B after it) - log P(B before it)`."""
    token_log_probability: float
    """The sum of its tokens' log-probabilities, without the correction."""

    @property
    def surprisal(self) -> float:
        """Surprisal in bits."""
        return -self.log_probability / math.log(2)


@dataclass(frozen=True, slots=True)
class TextScore:
    """The words of a text; see the module's docstring for what their sum is."""

    text: str
    words: tuple[WordScore, ...]
    end: float
    """The end term: log-probability of the tokens after the last word and of the end, given that the word has ended."""
    begins: float
    """`log P(B | c)`, 0 at the beginning of a text, and where the text goes on with the context's last word."""
    token_log_probability: float
    """The log-probability of all tokens, and of the end of the text."""


def score_words(
    model: CausalModel,
    vocabulary: WordVocabulary,
    context: Sequence[int],
    tokens: Sequence[int],
    *,
    batch_size: int = 32,
) -> TextScore:
    """Return the canonical value of each word of a tokenized text after a context; see `score_rows`."""
    prefixes = [(*context, *tokens[:count]) for count in range(len(tokens) + 1)]
    return score_rows(vocabulary, context, tokens, BatchedRows(model, batch_size)(prefixes))


def score_rows(
    vocabulary: WordVocabulary, context: Sequence[int], tokens: Sequence[int], rows: Iterable[Array]
) -> TextScore:
    """Return the canonical value of each word of a text, from the log-probabilities of its next tokens.

    `rows` are the `T + 1` rows `[V]` after the context, and after each token; they are read one by one. Raises
    `ValueError` for another number of rows, and those of `TokenizedText`.
    """
    text = TokenizedText(vocabulary, context, tokens)
    masses, begins, end = [], {}, -math.inf
    for place, row in zip(range(len(tokens) + 1), rows, strict=True):
        if place in text.cuts:
            group = word_begins(vocabulary, text.cuts[place])
            begins[place] = 0.0 if group is None else log_sum(row[group])
        if place < len(tokens):
            masses.append(float(row[tokens[place]]))
        else:
            end = log_sum(row[vocabulary.ends_text])
    return text.score(masses, begins, end)


def word_begins(vocabulary: WordVocabulary, state: State) -> NDArray[np.bool_] | None:
    """Return the tokens that begin a new word, or end the text, in a state, `[V]`; None where each token does."""
    return None if state is State.LEADING else ~vocabulary.continuation(state).excluded


class TokenizedText:
    """The words of a text that is given as tokens. Words that share a token are scored together.

    Where the text goes on with the context's last word, the first "word" is the rest of it, and is not divided by
    `P(B | c)`.
    """

    def __init__(self, vocabulary: WordVocabulary, context: Sequence[int], tokens: Sequence[int]) -> None:
        """Raise `ValueError` for special tokens in the text, and a context that ends within a character that may be a
        separator or punctuation.
        """
        pieces = [vocabulary.pieces[token] for token in tokens]
        if not all(pieces):
            raise ValueError("the text holds a special token")
        before, boundaries, self._bytes = vocabulary.state(context), vocabulary.boundaries, b"".join(pieces)
        self._units = _units(vocabulary, before, pieces)
        offsets = list(itertools.accumulate(map(len, pieces), initial=0))
        ends = {end for _, _, end in self._units}
        self.cuts = {
            place: boundaries.after(self._bytes[: offsets[place]], strict=False) if place else before
            for place in sorted(ends | {0})
        }
        """The state after so many tokens, where a word ends, or none has begun: what `score` needs `B` for."""
        if self._bytes and boundaries.read(before, self._bytes, final=True).state is None:
            del self.cuts[0]

    def score(self, masses: Sequence[float], begins: Mapping[int, float], end: float) -> TextScore:
        """Return the words, from log-probabilities of the tokens `[T]`, of `B` at each of `cuts`, and of the end."""
        begins = {0: 0.0, **begins}
        characters, scores, first = _characters(self._bytes), [], 0
        for start, stop, last in self._units:
            mass = math.fsum(masses[first:last])
            value = _given(mass + begins[last], begins[first])
            word = self._bytes[start:stop].decode(errors="replace")
            scores.append(WordScore(word, (int(characters[start]), int(characters[stop])), (first, last), value, mass))
            first = last
        rest, whole = math.fsum(masses[first:]) + end, math.fsum(masses) + end
        return TextScore(
            self._bytes.decode(errors="replace"), tuple(scores), _given(rest, begins[first]), begins[0], whole
        )


def _given(both: float, condition: float) -> float:
    """Return a conditional log-probability; an event of probability 0 keeps it, whatever the condition has."""
    return both if both == -math.inf else both - condition


def _units(vocabulary: WordVocabulary, before: State, pieces: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Return the words between which tokens end: first byte, the byte after the last, and the token after the last."""
    words = list(vocabulary.boundaries.words(b"".join(pieces), before))
    ends = list(itertools.accumulate(map(len, pieces)))
    nexts = [*(begin for begin, _ in words[1:]), len(b"".join(pieces))]
    units, token, first = [], 0, None
    for (begin, stop), limit in zip(words, nexts, strict=False):  # without words, the length of the text is left
        first = begin if first is None else first
        while ends[token] < stop:
            token += 1
        if ends[token] <= limit:  # before the next word's first byte
            units.append((first, stop, token + 1))
            first = None
    return units


def _characters(text: bytes) -> Array:
    """Return the number of characters before each byte, and of all: `[bytes + 1]`."""
    first = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
    counts: Array = np.concatenate([[0], np.cumsum(first)])
    return counts
