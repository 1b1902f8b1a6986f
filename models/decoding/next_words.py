"""Best-first search for the most probable next words of a causal model over subwords, with bounds.

The event of a word is that of `models.decoding.word_probabilities`. The search expands token prefixes in the order of
their mass. Each expansion divides the mass of a prefix among its next tokens: some complete a word, whose probability
grows, and the others are prefixes to expand. All that is not expanded is kept by its text `x`: it can only be part of
words that begin with `x` (or where undecided bytes follow `x`, of `x` itself). With `R(x)` the mass not expanded at
`x`,

    found(u)  <=  P(u | c) P(B | c)  <=  found(u) + sum over beginnings x of u: R(x)

and a word that was not found at all has at most the largest of these sums over any `x`. Tokens of an expansion with
less than `negligible` mass are not kept one by one: of them, one word can have at most as many as there are tokens in
the vocabulary that begin with each other.

Shapes: `V` tokens.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.backend import Array
from models.decoding.word_probabilities import BatchedRows, CausalModel, Prefix, log_word_begins
from models.text.word_vocabulary import State, WordVocabulary

__all__ = ["NextSubwordWords", "WordBounds", "next_words"]


@dataclass(frozen=True, slots=True)
class WordBounds:
    """A next word and the bounds of its probability, in [0, 1], given that the context's last word has ended."""

    text: bytes
    """The word with its leading separators."""
    probability: float
    """Mass that was found: the lower bound."""
    upper_bound: float

    @property
    def word(self) -> str:
        """The word without its leading separators; bytes that are not UTF-8 become U+FFFD."""
        return self.text.decode(errors="replace").strip()


@dataclass(frozen=True, slots=True)
class NextSubwordWords:
    """The most probable next words, most probable first."""

    words: tuple[WordBounds, ...]
    others: float
    """Mass that was found of other words."""
    end: float
    """Mass that was found of the end of the text without another word."""
    left: float
    """Mass that was not expanded. The masses of words, others, the end and this sum to 1."""
    certain: bool
    """Whether no other word can be among these, and their order is right."""
    prefixes: int
    """Prefixes computed by the model."""


def next_words(
    model: CausalModel,
    vocabulary: WordVocabulary,
    context: Sequence[int],
    k: int = 10,
    *,
    max_gap: float = 1.0,
    max_prefixes: int = 1024,
    batch_size: int = 32,
    negligible: float = 1e-6,
    longest: float = math.inf,
) -> NextSubwordWords:
    """Return the `k` most probable next words, all tokenizations of a word merged.

    The search ends as soon as the words and their order are certain and their bounds differ by at most `max_gap`, or
    after `max_prefixes` prefixes. Prefixes of more than `longest` tokens, the context's included, are not expanded.
    Raises `ValueError` for arguments out of their range, for a context that ends within a character that may be a
    separator or punctuation, and for one whose last word cannot be over.
    """
    if k < 1 or max_prefixes < 1 or not max_gap >= 0 or not 0 <= negligible < 1:
        raise ValueError("k and max_prefixes must be at least 1, max_gap at least 0, negligible in [0, 1)")
    rows, prefix = BatchedRows(model, batch_size), tuple(context)
    search = _Search(vocabulary, prefix, negligible, longest)
    scale = math.exp(-log_word_begins(rows, vocabulary, prefix, longest))
    certain = False
    while not (certain := search.is_certain(k, max_gap / scale)) and (room := max_prefixes - rows.count) > 0:
        batch = search.best(min(batch_size, room))
        if not batch:
            break
        for node, row in zip(batch, rows([node.tokens for node in batch]), strict=True):
            search.expand(node, row)
    return search.result(k, scale, certain, rows.count)


@dataclass(frozen=True, slots=True, order=True)
class _Node:
    """A prefix to expand."""

    order: float
    """Its mass, negative."""
    tokens: Prefix
    text: bytes
    """Bytes of the continuation."""
    decided: int
    """How many of them are not undecided."""


class _Search:
    """The state of a search, without the model."""

    def __init__(self, vocabulary: WordVocabulary, context: Prefix, negligible: float, longest: float) -> None:
        self._vocabulary, self._negligible, self._longest = vocabulary, negligible, longest
        self._start = vocabulary.state(context)
        self._heap = [_Node(-1.0, context, b"", 0)]
        self._unresolved: list[_Node] = []
        """Prefixes of which it is not known whether the context's last word goes on."""
        self._found: defaultdict[bytes, float] = defaultdict(float)
        self._end = 0.0
        self._left: defaultdict[bytes, float] = defaultdict(float, {b"": 1.0})
        """Mass of the prefixes to expand, by their decided bytes."""
        self._waiting: defaultdict[bytes, int] = defaultdict(int, {b"": 1})
        """Number of those prefixes."""
        self._dropped = 0.0
        """Mass of the tokens that are not kept one by one, and of too long prefixes."""
        self._dropped_of_word: defaultdict[bytes, float] = defaultdict(float)
        """The most of that which one word can have, by the decided bytes before them."""

    def best(self, count: int) -> list[_Node]:
        """Remove the most probable prefixes, first those that may not belong to the event at all."""
        first, self._unresolved = self._unresolved[:count], self._unresolved[count:]
        return first + [heapq.heappop(self._heap) for _ in range(min(count - len(first), len(self._heap)))]

    def expand(self, node: _Node, row: Array) -> None:
        """Divide the mass of a prefix among its next tokens; `row` are their log-probabilities, `[V]`."""
        mass = -node.order
        self._release(node, mass)
        masses = mass * np.exp(row)
        vocabulary, boundaries = self._vocabulary, self._vocabulary.boundaries
        word, undecided = node.text[: node.decided], node.text[node.decided :]
        # `final`: decided bytes may look like a part of a mark that bytes after them have ruled out.
        state = boundaries.read(self._start, word, final=True).state if word else self._start
        assert state is not None
        then = vocabulary.continuation(state, undecided)
        self._add(word, float(masses[then.over].sum()))
        for end, tokens in then.ends:
            self._add(word + end, float(masses[tokens].sum()))
        self._finish(node, float(masses[vocabulary.ends_text].sum()))
        kept = set(then.undecided)
        for token in then.undecided:
            whole = undecided + vocabulary.pieces[token]
            self._push(node, token, float(masses[token]), len(word) + boundaries.read(state, whole).end)
        going = then.going_on.copy()
        going[list(kept)] = False
        large = going & (masses >= max(self._negligible, np.finfo(float).tiny))
        for token in np.flatnonzero(large).tolist():
            size = len(node.text) + len(vocabulary.pieces[token])
            self._push(node, token, float(masses[token]), size)
        self._drop(word, masses[going & ~large])

    def _release(self, node: _Node, mass: float) -> None:
        """Subtract a prefix's mass from the rest; the last one at a text leaves exactly 0, whatever was rounded."""
        text = node.text[: node.decided]
        self._left[text] -= mass
        self._waiting[text] -= 1
        if not self._waiting[text]:
            del self._left[text], self._waiting[text]

    def _add(self, word: bytes, mass: float) -> None:
        if mass > 0:
            self._found[word] += mass

    def _push(self, node: _Node, token: int, mass: float, decided: int) -> None:
        text = node.text + self._vocabulary.pieces[token]
        if mass > 0 and len(node.tokens) >= self._longest:
            self._dropped += mass
            self._dropped_of_word[text[:decided]] += mass
        elif mass > 0:
            child = _Node(-mass, (*node.tokens, token), text, decided)
            if decided or self._start is State.LEADING:
                heapq.heappush(self._heap, child)
            else:
                self._unresolved.append(child)
            self._left[text[:decided]] += mass
            self._waiting[text[:decided]] += 1

    def _finish(self, node: _Node, mass: float) -> None:
        """Add the mass of the end of the text."""
        reading = self._vocabulary.boundaries.read(self._start, node.text, final=True)
        if reading.state in (State.LETTERS, State.MARKS):
            self._add(node.text[: reading.end], mass)
        elif reading.state is not None:
            self._end += mass

    def _drop(self, word: bytes, masses: Array) -> None:
        total = float(masses.sum())
        if total > 0:
            self._dropped += total
            most = self._vocabulary.longest_chain * float(masses.max())
            self._dropped_of_word[word] += min(total, most)

    def is_certain(self, k: int, max_gap: float) -> bool:
        """Return whether the `k` best words, and their order, cannot change, and their bounds are close enough."""
        if not self._heap and not self._unresolved and not self._dropped:
            return True
        best = self._best(k)
        if len(best) < k or (self._heap and -self._heap[0].order > best[-1][1]):
            return False
        uppers = [mass + self._open(word) for word, mass in best]
        if any(upper - mass > max_gap for upper, (_, mass) in zip(uppers, best, strict=True)):
            return False
        if any(upper > mass for upper, (_, mass) in zip(uppers[1:], best, strict=False)):
            return False
        least, chosen = best[-1][1], {word for word, _ in best}
        if any(mass + self._open(word) > least for word, mass in self._found.items() if word not in chosen):
            return False
        return max(map(self._open, [*self._left, *self._dropped_of_word]), default=0.0) <= least

    def _best(self, k: int) -> list[tuple[bytes, float]]:
        return heapq.nsmallest(k, self._found.items(), key=lambda each: (-each[1], each[0]))

    def _open(self, text: bytes) -> float:
        """Return the mass not expanded that may be of words that begin with `text`, or be added to this word."""
        return math.fsum(self._beginnings(text))

    def _beginnings(self, text: bytes) -> Iterator[float]:
        for size in range(len(text) + 1):
            yield self._left.get(text[:size], 0.0)
            yield self._dropped_of_word.get(text[:size], 0.0)

    def result(self, k: int, scale: float, certain: bool, prefixes: int) -> NextSubwordWords:
        best = self._best(k)
        found, of_best = math.fsum(self._found.values()), math.fsum(mass for _, mass in best)
        # Prefixes that are not expanded may be outside the event, whose mass is known: all of it not found is left.
        left = min(math.fsum(self._left.values()) + self._dropped, max(0.0, 1 / scale - found - self._end))
        words = tuple(
            WordBounds(word, min(1.0, mass * scale), min(1.0, (mass + min(left, self._open(word))) * scale))
            for word, mass in best
        )
        others = max(0.0, found - of_best)
        return NextSubwordWords(words, others * scale, self._end * scale, left * scale, certain, prefixes)
