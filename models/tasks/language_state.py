"""States of texts that a recurrent language model has read a part of, from which the next run goes on.

Shapes: `B` texts, `T` tokens of a run, `L` layers, `d` hidden size, `M` remembered words.

Where a component of the output layer reads the words before a position (a cache, a pointer), the state holds the last
of them, with the hidden states that they were predicted from. The last hidden state predicts a word that is read by the
next run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from models.backend import Array

__all__ = ["Prefix", "StateLayout"]

T = TypeVar("T")

_NO_WORD, _NEXT_TOKEN = -1, -2
_HELD_BYTES = 1 << 27
"""Bytes of remembered words that are held of the texts of a run, unless one text has more."""
_BATCH_AXIS = {"hidden": 1, "cell": 1, "memory_words": 0, "memory_states": 0}


@dataclass(frozen=True, slots=True)
class Prefix:
    """The model's state after a text, to go on from. Valid for the model that made it."""

    hidden: Array
    """`[L, d]`"""
    cell: Array
    """`[L, d]`"""
    words: Array | None = None
    """`[M]`: the last words, for a model with a cache or pointer; the last of them is still to be read."""
    states: Array | None = None
    """`[M, d]`: the hidden states that the words were predicted from."""

    @property
    def nbytes(self) -> int:
        """Return the size of the state in bytes."""
        return sum(each.nbytes for each in (self.hidden, self.cell, self.words, self.states) if each is not None)


class StateLayout:
    """The inputs and outputs of the graphs that hold the states of texts."""

    def __init__(self, num_layers: int, hidden_size: int, window: int | None = None) -> None:
        """`window` is the most words that a component of the output layer reads; None where none reads words."""
        self.outputs = ("next_hidden", "next_cell", *(() if window is None else ("states",)))
        """Outputs of a run that `after` takes."""
        zero = np.zeros((num_layers, hidden_size), np.float32)
        memory = () if window is None else (np.zeros(0, np.int64), np.zeros((0, hidden_size), np.float32))
        self.start = Prefix(zero, zero, *memory)
        """The state before a text."""
        self._window = window

    def groups(self, texts: Sequence[T], longest: int, most: int = 1 << 30) -> Iterator[Sequence[T]]:
        """Yield texts of at most so many tokens, as many at a time as may be held with the words remembered of each."""
        if self._window is not None and self.start.states is not None:
            size = 4 * min(self._window, longest) * self.start.states.shape[1]
            most = max(1, min(most, _HELD_BYTES // max(size, 1)))
        for first in range(0, len(texts), most):
            yield texts[first : first + most]

    def stacked(self, prefixes: Sequence[Prefix]) -> dict[str, Array]:
        """Return the state of a batch, by the names of the graphs' inputs; shorter memories lack words in front."""
        state = {name: np.stack([getattr(each, name) for each in prefixes], axis=1) for name in ("hidden", "cell")}
        if self._window is None:
            return state
        counts = [0 if each.words is None else len(each.words) for each in prefixes]
        most, size = max(1, *counts), state["hidden"].shape[2]
        words = np.full((len(prefixes), most), _NO_WORD, np.int64)
        states = np.zeros((len(prefixes), most, size), np.float32)
        for row, (count, prefix) in enumerate(zip(counts, prefixes, strict=True)):
            if prefix.words is not None and prefix.states is not None:
                words[row, most - count :], states[row, most - count :] = prefix.words, prefix.states
        return {**state, "memory_words": words, "memory_states": states}

    def inputs(self, state: Mapping[str, Array], tokens: Array) -> dict[str, Array]:
        """Return the inputs of a run that reads tokens `[B, T]`: the first one is the word that was to be read."""
        inputs = {name: np.ascontiguousarray(value) for name, value in state.items()}
        if self._window is not None:
            words = inputs["memory_words"]
            inputs["memory_words"] = np.where(words == _NEXT_TOKEN, tokens[:, :1], words)
        return inputs

    def after(self, inputs: Mapping[str, Array], outputs: Sequence[Array]) -> dict[str, Array]:
        """Return the state after a run, from its inputs and the outputs that `outputs` names."""
        hidden, cell, *states = outputs
        state = {"hidden": hidden, "cell": cell}
        if self._window is None:
            return state
        tokens, lengths = inputs["tokens"], inputs["lengths"]
        words = np.concatenate([inputs["memory_words"], tokens[:, 1:]], axis=1)
        vectors = np.concatenate([inputs["memory_states"], states[0]], axis=1)
        places = (vectors.shape[1] - tokens.shape[1] + lengths)[:, None] + np.arange(
            -min(self._window, vectors.shape[1]), 0
        )
        rows, ends = np.arange(len(tokens))[:, None], places == places[:, -1:]
        known = np.where(places < 0, _NO_WORD, words[rows, np.clip(places, 0, words.shape[1] - 1)])
        known = np.where(ends, _NEXT_TOKEN, known)
        used = int((known != _NO_WORD).any(axis=0).argmax())  # columns in front of it have no word of any text
        return {
            **state,
            "memory_words": known[:, used:],
            "memory_states": vectors[rows, np.maximum(places[:, used:], 0)],
        }

    def rows(self, state: Mapping[str, Array], rows: Sequence[int] | slice) -> dict[str, Array]:
        """Return the state of some of the texts."""
        return {name: value[:, rows] if _BATCH_AXIS[name] else value[rows] for name, value in state.items()}

    def prefixes(self, state: Mapping[str, Array]) -> list[Prefix]:
        """Return the state of each text; copies, so that a kept one does not keep its whole batch."""
        return [self.prefix(state, row) for row in range(state["hidden"].shape[1])]

    def prefix(self, state: Mapping[str, Array], row: int) -> Prefix:
        """Return a copy of the state of one text."""
        hidden, cell = state["hidden"][:, row].copy(), state["cell"][:, row].copy()
        if self._window is None:
            return Prefix(hidden, cell)
        first = int((state["memory_words"][row] != _NO_WORD).argmax())
        words, states = (state[name][row, first:].copy() for name in ("memory_words", "memory_states"))
        return Prefix(hidden, cell, words, states)

    def joined(self, states: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return the state of the texts of several batches."""
        if self._window is not None and len({each["memory_words"].shape[1] for each in states}) > 1:
            return self.stacked([prefix for state in states for prefix in self.prefixes(state)])
        return {
            name: np.concatenate([state[name] for state in states], axis=axis)
            for name, axis in _BATCH_AXIS.items()
            if name in states[0]
        }
