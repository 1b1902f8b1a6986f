"""A running translation: sentences that take decoder steps together, joining and leaving between steps.

Shapes: `B` sentences, `K` hypotheses a sentence, `S` source tokens, `M` slots of the caches.

Caches are written in place and never reordered: step t of a sentence fills the slots `K t` to `K t + K - 1`, and
`visible` says which slots each hypothesis descends from.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from models.backend import Array, Backend, Resident
from models.beam_search import BeamSearch, Hypothesis, SearchOptions

__all__ = ["Decoding"]

_FIRST_STEPS = 16
"""Steps that new caches have room for; the room doubles when it is used up."""
_IDLE_SHARE = 8
"""Finished sentences are dropped when they are more than one in so many; dropping copies the caches."""


class Decoding:
    """Decoder steps of sentences that share a beam size. For one thread at a time."""

    def __init__(self, backend: Backend, *, layers: int, beam_size: int, end_id: int, vocab_size: int) -> None:
        self._backend = backend
        self._layers = layers
        self._end = end_id
        self._vocab_size = vocab_size
        self.search = BeamSearch(beam_size, end_id)
        self._state: dict[str, Array] = {}
        self._memory: dict[str, Array] = {}
        self._resident: Resident | None = None
        self._source_lengths = np.zeros(0, np.int64)
        self._visible = np.zeros((0, beam_size, _FIRST_STEPS * beam_size), bool)
        self._idle: set[int] = set()

    def __len__(self) -> int:
        """Sentences that are not finished."""
        return len(self.search) - len(self._idle)

    def add(self, sources: Sequence[Sequence[int]], searches: Iterable[tuple[object, SearchOptions, int]]) -> None:
        """Reads sources (ids without ends); `searches` is what `BeamSearch.add` takes for each of them."""
        for key, options, max_tokens in searches:
            self.search.add(key, options, max_tokens)
        lengths = np.array([len(source) + 1 for source in sources])
        padded = np.full((len(sources), int(lengths.max())), self._end)
        for row, source in enumerate(sources):
            padded[row, : len(source)] = source
        names = [f"memory_{part}_{layer}" for layer in range(self._layers) for part in ("keys", "values")]
        written = self._backend.run("encode", {"source": padded, "source_lengths": lengths}, names)
        self._join(dict(zip(names, written, strict=True)), lengths)

    def _join(self, memory: dict[str, Array], lengths: Array) -> None:
        count, slots = len(lengths), self._visible.shape[2]
        _, heads, _, size = memory["memory_values_0"].shape
        cache = np.zeros((count, heads, slots, size), np.float32)
        caches = {f"{part}_{layer}": cache for layer in range(self._layers) for part in ("keys", "values")}
        state = self._current_state()
        if state:
            self._state = {name: np.concatenate([state[name], caches[name]]) for name in caches}
            self._memory = {name: _stacked(self._memory[name], memory[name]) for name in memory}
        else:
            self._state = {name: array.copy() for name, array in caches.items()}
            self._memory = memory
        self._visible = np.concatenate([self._visible, np.zeros((count, *self._visible.shape[1:]), bool)])
        self._source_lengths = np.concatenate([self._source_lengths, lengths])
        self._resident = None

    def _current_state(self) -> dict[str, Array]:
        return self._state if self._resident is None else self._resident.state()

    def step(self) -> list[tuple[object, list[Hypothesis]]]:
        """Takes a step with every sentence; returns keys and n best hypotheses of those that it finished."""
        if not len(self):
            return []
        search = self.search
        self._make_room()
        reading = 1 if search.single else search.beam_size
        rows, hypotheses = np.arange(len(search))[:, None], np.arange(reading)
        self._visible[rows, hypotheses, search.lengths[:, None] * reading + hypotheses] = True
        if self._resident is None:
            self._resident = self._backend.resident("step", self._state, self._memory)
        log_probabilities, candidates = self._resident.run(
            {
                "tokens": np.ascontiguousarray(search.last_tokens()[:, :reading]),
                "positions": search.lengths,
                "visible": np.ascontiguousarray(self._visible[:, :reading]),
                "source_lengths": self._source_lengths,
                "k": np.array(search.num_candidates(self._vocab_size)),
            },
            ["log_probabilities", "candidates"],
        )
        origins, over = search.advance(log_probabilities, candidates)
        self._visible = self._visible[rows, origins]
        new = [row for row in over if row not in self._idle]
        results = [(search.keys[row], search.best(row)) for row in new]
        self._idle.update(new)
        if len(self._idle) * _IDLE_SHARE > len(search):
            self._drop(self._idle)
        return results

    def cancel(self, keys: Iterable[object]) -> None:
        """Drops sentences whose results nobody waits for."""
        gone = set(map(id, keys))
        self._drop(self._idle | {row for row, key in enumerate(self.search.keys) if id(key) in gone})

    def _make_room(self) -> None:
        """Doubles the caches when the next step would not fit."""
        slots = self._visible.shape[2]
        if (int(self.search.lengths.max()) + 1) * self.search.beam_size <= slots:
            return
        room = ((0, 0), (0, 0), (0, slots), (0, 0))
        self._state = {name: np.pad(array, room) for name, array in self._current_state().items()}
        self._visible = np.pad(self._visible, ((0, 0), (0, 0), (0, slots)))
        self._resident = None

    def _drop(self, rows: set[int]) -> None:
        kept = self.search.remove(sorted(rows))
        self._idle = set()
        if len(kept) == len(self._source_lengths):
            return
        self._source_lengths = self._source_lengths[kept]
        longest = int(self._source_lengths.max(initial=1))
        self._state = {name: array[kept] for name, array in self._current_state().items()}
        self._memory = {name: array[kept, :, :longest] for name, array in self._memory.items()}
        self._visible = self._visible[kept]
        self._resident = None
        if not len(kept):
            self._state, self._memory = {}, {}
            self._visible = np.zeros((0, self.search.beam_size, _FIRST_STEPS * self.search.beam_size), bool)


def _stacked(first: Array, second: Array) -> Array:
    """Both along the first axis, the third padded to the longer one."""
    width = max(first.shape[2], second.shape[2])
    padded = [np.pad(each, ((0, 0), (0, 0), (0, width - each.shape[2]), (0, 0))) for each in (first, second)]
    return np.concatenate(padded)
