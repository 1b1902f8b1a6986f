"""Scoring of token sequences by the graphs of a language model. All log-probabilities are base e.

Shapes: `B` sequences, `d` hidden size, `L` layers, `V` words. A sequence begins with the token after which it is read,
whose probability is not asked for.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from models.backend import Array, Backend
from models.tasks.language_state import Prefix, StateLayout
from models.text.padding import padded
from models.text.prefix_cache import PrefixCache, packed
from models.text.shared_prefixes import windows

__all__ = ["Explanation", "Scorer"]

_WINDOW_STEPS = 32
"""Time steps a run takes at once; longer sequences continue from the state, and are kept in the cache there."""
_WINDOW_POSITIONS = 256
"""Positions a run holds at once, which bounds its `[positions, V]` scores; more are no faster."""
_GROUP = 1024
"""Sequences whose states are held at once."""
_EXPLAINED = 16
"""Sequences whose whole distributions, `[B, V]`, are held at once."""

Sequences = Sequence[tuple[int, ...]]


class Explanation(NamedTuple):
    """A token in its context."""

    log_probability: float
    rank: int | None
    """1 for the most probable word; none for a word of probability 0."""
    entropy: float
    """Entropy of the distribution that the token is drawn from, in nats."""
    alternatives: tuple[tuple[int, float], ...]
    """The most probable words and their log-probabilities, without words of probability 0."""


class _Scored(NamedTuple):
    """A prefix: the log-probabilities of its tokens, and the state before its last token is read."""

    scores: tuple[float, ...]
    state: Prefix


class Scorer:
    """Computes the log-probabilities of sequences. Safe to call from several threads."""

    def __init__(self, backend: Backend, layout: StateLayout, vocab_size: int) -> None:
        self._backend = backend
        self._layout = layout
        self._vocab_size = vocab_size
        self._nothing = _Scored((), layout.start)
        self._cache: PrefixCache[_Scored] | None = None
        self._on_lookup: Callable[[bool], object] = bool

    def use_cache(self, max_bytes: int, on_lookup: Callable[[bool], object]) -> None:
        """Keep prefixes where windows end, so that sequences that share them later continue from there."""
        self._cache, self._on_lookup = PrefixCache(max_bytes), on_lookup

    def scores(self, sequences: Sequences, salts: Sequence[str]) -> list[list[float]]:
        """Return the log-probability of every token but the first; a prefix of several sequences is computed once.

        Sequences share prefixes, those in the cache and those of each other, only where they have the same salt: the
        time of a batch would tell what the other sequences begin with.
        """
        starts = [self._start(*pair) for pair in zip(sequences, salts, strict=True)]
        order = sorted(range(len(sequences)), key=lambda index: len(starts[index].scores) - len(sequences[index]))
        scores: dict[int, list[float]] = {}
        for group in self._layout.groups(order, max(map(len, sequences), default=0), _GROUP):
            some = [sequences[index] for index in group]
            found = self._scores(some, [starts[index] for index in group], [salts[index] for index in group])
            scores |= zip(group, found, strict=True)
        return [scores[index] for index in range(len(sequences))]

    def explanations(self, sequences: Sequences, top_k: int) -> list[list[Explanation]]:
        """Return rank, entropy and the `top_k` most probable words for every token but the first.

        Each step reads a token and sorts its whole distribution, which takes many times as long as `scores`.
        """
        order = sorted(range(len(sequences)), key=lambda index: -len(sequences[index]))
        found: list[list[Explanation]] = [[] for _ in sequences]
        for first in range(0, len(order), _EXPLAINED):
            group = order[first : first + _EXPLAINED]
            state = self._layout.stacked([self._layout.start] * len(group))
            for step in range(len(sequences[group[0]]) - 1):
                live = [index for index in group if len(sequences[index]) - 1 > step]
                tokens = np.array([sequences[index][step : step + 2] for index in live])
                explanations, state = self._explain(tokens, self._layout.rows(state, slice(len(live))), top_k)
                for index, explanation in zip(live, explanations, strict=True):
                    found[index].append(explanation)
        return found

    def _start(self, sequence: tuple[int, ...], salt: str) -> _Scored:
        """Return the longest prefix of a sequence that is in the cache."""
        if self._cache is None:
            return self._nothing
        found = self._cache.longest(packed(sequence), salt=salt)
        self._on_lookup(found is not None)
        return self._nothing if found is None else found[1]

    def _scores(self, sequences: Sequences, starts: Sequence[_Scored], salts: Sequence[str]) -> list[list[float]]:
        """Return the scores of sequences in descending order of their remaining length, window by window."""
        roots = [(id(start), salt) for start, salt in zip(starts, salts, strict=True)]
        distinct = dict(zip(roots, starts, strict=True))
        rows = {key: row for row, key in enumerate(distinct)}
        state = self._layout.stacked([start.state for start in distinct.values()])
        scores = [list(start.scores) for start in starts]
        rest = [sequence[len(start.scores) :] for sequence, start in zip(sequences, starts, strict=True)]
        for window in windows(rest, [rows[root] for root in roots], _WINDOW_STEPS):
            values, state = self._score_rows(window.rows, self._layout.rows(state, window.parents))
            for index, row in window.places.items():
                scores[index] += values[row]
            kept = {row: (sequences[index], scores[index], salts[index]) for index, row in window.places.items()}
            self._remember(kept, state)
        return scores

    def _score_rows(self, rows: Sequences, state: Mapping[str, Array]) -> tuple[list[list[float]], dict[str, Array]]:
        """Return the scores of the targets of rows in descending order of length, and the states after them."""
        scores: list[list[float]] = []
        states = []
        while len(scores) < len(rows):
            first, steps = len(scores), len(rows[len(scores)]) - 1
            some = slice(first, first + max(1, _WINDOW_POSITIONS // steps))
            inputs = padded([row[:-1] for row in rows[some]])
            inputs["targets"] = padded([row[1:] for row in rows[some]])["tokens"]
            inputs |= self._layout.inputs(self._layout.rows(state, some), inputs["tokens"])
            values, *after = self._backend.run("score", inputs, ["log_probabilities", *self._layout.outputs])
            states.append(self._layout.after(inputs, after))
            scores += [values[row, :length].tolist() for row, length in enumerate(inputs["lengths"].tolist())]
        return scores, self._layout.joined(states)

    def _remember(
        self, rows: Mapping[int, tuple[tuple[int, ...], Sequence[float], str]], state: Mapping[str, Array]
    ) -> None:
        """Keep the rows of a window whose sequences go on, each with a sequence that goes through it, and its salt."""
        if self._cache is None:
            return
        for row, (sequence, scores, salt) in rows.items():
            if len(scores) + 1 < len(sequence):
                kept = _Scored(tuple(scores), self._layout.prefix(state, row))
                size = kept.state.nbytes + 32 * len(scores)
                self._cache.put(packed(sequence[: len(scores) + 1]), kept, size, salt=salt)

    def _explain(
        self, tokens: Array, state: Mapping[str, Array], top_k: int
    ) -> tuple[list[Explanation], dict[str, Array]]:
        """Read one token of each sequence and explain the next: `tokens` is `[B, 2]`."""
        inputs = {"tokens": tokens[:, :1], "lengths": np.ones(len(tokens), np.int64), "k": np.array(self._vocab_size)}
        inputs |= self._layout.inputs(state, inputs["tokens"])
        outputs = ["log_probabilities", "words", "entropy", *self._layout.outputs]
        values, words, entropy, *after = self._backend.run("next_words", inputs, outputs)
        places = (words == tokens[:, 1:]).argmax(axis=1)
        explanations = []
        for row, place in enumerate(places.tolist()):
            best = zip(words[row, :top_k].tolist(), values[row, :top_k].tolist(), strict=True)
            alternatives = tuple((word, value) for word, value in best if value != -math.inf)
            value = float(values[row, place])
            rank = None if value == -math.inf else place + 1
            explanations.append(Explanation(value, rank, float(entropy[row]), alternatives))
        return explanations, self._layout.after(inputs, after)
