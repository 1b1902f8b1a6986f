"""A running translation: sentences that take decoder steps together, joining and leaving between steps.

Shapes: `B` sentences, `K` hypotheses a sentence, `S` source tokens, `M` slots of the caches.

Caches are written in place and never reordered: step t of a sentence fills the slots `K t` to `K t + K - 1`, and
`visible` says which slots each hypothesis descends from.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from models.backend import Array, Backend, Resident
from models.beam_search import BeamSearch, Hypothesis, SearchOptions

__all__ = ["Decoding"]

_FIRST_STEPS = 16
"""Steps that new caches have room for; the room doubles when it is used up."""
_SHRINK = 4
"""Room is given back when so many times as much is there as is needed."""
_WIDTHS = 8
"""Room for sources grows in steps of this, where sentences join others."""


class Decoding:
    """Decoder steps of sentences that share a beam size. For one thread at a time.

    A sentence that joins takes the place of one that is over, so that nothing but its own rows is written.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        layers: int,
        beam_size: int,
        end_id: int,
        vocab_size: int,
        idle_share: float,
    ) -> None:
        """`idle_share`: places kept for sentences to come, as a share of all. Giving places back copies the caches."""
        self._backend = backend
        self._layers = layers
        self._end = end_id
        self._vocab_size = vocab_size
        self._idle_share = idle_share
        self.search = BeamSearch(beam_size, end_id)
        self._state: dict[str, Array] = {}
        self._memory: dict[str, Array] = {}
        self._resident: Resident | None = None
        self._source_lengths = np.zeros(0, np.int64)
        self._visible = np.zeros((0, beam_size, _FIRST_STEPS * beam_size), bool)

    def __len__(self) -> int:
        """Sentences that are not over."""
        return len(self.search) - len(self.search.resting)

    def add(self, sources: Sequence[Sequence[int]], searches: Iterable[tuple[object, SearchOptions, int]]) -> None:
        """Reads sources (ids without ends); `searches` is what `BeamSearch.add` takes for each of them."""
        lengths = np.array([len(source) + 1 for source in sources])
        padded = np.full((len(sources), int(lengths.max())), self._end)
        for row, source in enumerate(sources):
            padded[row, : len(source)] = source
        names = [f"memory_{part}_{layer}" for layer in range(self._layers) for part in ("keys", "values")]
        written = self._backend.run("encode", {"source": padded, "source_lengths": lengths}, names)
        memory = dict(zip(names, written, strict=True))
        before = len(self.search)
        rows = np.array([self.search.add(*search) for search in searches])
        self._fit(before, memory)
        self._source_lengths[rows], self._visible[rows] = lengths, False
        for name, array in memory.items():
            self._memory[name][rows, :, : array.shape[2]] = array
        if self._resident is not None:
            self._resident.reload()

    def _fit(self, before: int, memory: Mapping[str, Array]) -> None:
        """Makes room for the memory of sentences that join where `before` were."""
        _, heads, needed, size = memory["memory_keys_0"].shape
        if not self._state:
            cache = (0, heads, self._visible.shape[2], size)
            self._state = {name.removeprefix("memory_"): np.zeros(cache, np.float32) for name in memory}
            self._memory = {name: np.zeros((0, heads, needed, size), np.float32) for name in memory}
        width = self._memory["memory_keys_0"].shape[2]
        if width < needed:
            width = -(-needed // _WIDTHS) * _WIDTHS
        if len(self.search) > before or width > self._memory["memory_keys_0"].shape[2]:
            self._rebuild(np.arange(before), len(self.search), width)

    def _rebuild(self, kept: Array, count: int, width: int, slots: int | None = None) -> None:
        """Other sizes: `count` places of which the first are those `kept`, room for `width` source tokens."""
        slots = self._visible.shape[2] if slots is None else slots
        state = self._state if self._resident is None else self._resident.state()
        self._state = {name: _resized(array, kept, count, slots) for name, array in state.items()}
        self._memory = {name: _resized(array, kept, count, width) for name, array in self._memory.items()}
        self._visible = _resized(self._visible, kept, count, slots)
        self._source_lengths = np.append(self._source_lengths[kept], np.ones(count - len(kept), np.int64))
        self._resident = None

    def step(self) -> list[tuple[object, list[Hypothesis]]]:
        """Takes a step with every sentence; returns keys and n best hypotheses of those that it finished."""
        if not len(self):
            return []
        search = self.search
        self._fit_slots()
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
        results = [(search.keys[row], search.best(row)) for row in over]
        if over:
            self._drop_idle()
        return results

    def cancel(self, keys: Iterable[object]) -> None:
        """Gives up sentences whose results nobody waits for."""
        gone = set(keys)
        self.search.rest([row for row, key in enumerate(self.search.keys) if key in gone])
        self._drop_idle()

    def _fit_slots(self) -> None:
        """Doubles the caches when the next step would not fit, halves them when it needs far less."""
        slots, count = self._visible.shape[2], len(self.search)
        needed = (int(self.search.lengths.max()) + 1) * self.search.beam_size
        wanted = slots
        if needed > slots:
            wanted = 2 * slots
        elif slots >= _SHRINK * needed and slots > _FIRST_STEPS * self.search.beam_size:
            wanted = slots // 2
        if wanted != slots:
            longest = int(self._source_lengths.max())
            self._rebuild(np.arange(count), count, longest, wanted)

    def _drop_idle(self) -> None:
        """Gives places back that are more than are kept for sentences to come."""
        idle = self.search.resting
        if len(idle) <= self._idle_share * len(self.search):
            return
        kept = self.search.remove(idle)
        if len(kept):
            self._rebuild(kept, len(kept), int(self._source_lengths[kept].max()))
            return
        self._state, self._memory, self._resident = {}, {}, None
        self._source_lengths = self._source_lengths[:0]
        self._visible = np.zeros((0, self.search.beam_size, _FIRST_STEPS * self.search.beam_size), bool)


def _resized(array: Array, kept: Array, count: int, size: int) -> Array:
    """The rows that are kept, then empty ones up to `count`; the third axis cut or padded to `size`."""
    common = min(size, array.shape[2])
    resized = np.zeros((count, array.shape[1], size, *array.shape[3:]), array.dtype)
    resized[: len(kept), :, :common] = array[kept, :, :common]
    return resized
