"""Continuous decoding: sentences are decoded in the same steps, and join and leave between steps.

Shapes: `B` sentences, `K` hypotheses a sentence, `S` source tokens, `M` slots of the caches.

Caches are written in place and never reordered: `visible` says which slots each hypothesis descends from.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from models.backend import Array, Backend, Resident
from models.bundle.manifest import Graph, TensorSpec
from models.decoding.attention import AttentionTrace
from models.decoding.beam_search import BeamSearch, Hypothesis, SearchOptions
from models.decoding.slots import Slots
from models.text.utf8 import Utf8Tokens

__all__ = ["Decoding", "Footprint"]

_SHRINK = 4
"""Buffers of sentences shrink when they are this many times larger than needed."""
_TIGHT = 3 / 4
"""Buffers shrink where sentences join and this fraction of source tokens or slots is enough."""
_WIDTHS = 8
"""Source lengths are rounded up to a multiple of this, so that buffers grow less often."""
_STEP_COPIES = 3
"""Arrays of one size that a step holds at once, of attention scores and of log-probabilities."""
_COMPONENT_COPIES = 4
"""More arrays of log-probabilities for each further component of a mixture; onnxruntime held 3.5 of four kernels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """The sizes of a decoder that determine how much memory a decoding takes."""

    layers: int
    """Layers with a cache."""
    heads: int
    hidden_size: int
    vocab_size: int
    step_vectors: int = 1
    """Vectors that a step computes for each hypothesis."""
    components: int = 1
    """Distributions that the output layer mixes."""
    source_tensors: Mapping[str, int] = field(default_factory=dict)
    """Outputs of the encoder other than keys and values, with the bytes that they have for each source token."""

    @classmethod
    def of_encoder(cls, encode: Graph, *, vocab_size: int, step_vectors: int = 1, components: int = 1) -> Self:
        """Return the sizes of a decoder by the contract of its encoder."""
        outputs = {each.name: each for each in encode.outputs}
        names = [name for name in outputs if name.startswith("memory_keys_")]
        heads, size = (axis for axis in outputs[names[0]].shape if isinstance(axis, int))
        own = {f"memory_{part}_{layer}" for layer in range(len(names)) for part in ("keys", "values")}
        return cls(
            layers=len(names),
            heads=heads,
            hidden_size=heads * size,
            vocab_size=vocab_size,
            step_vectors=step_vectors,
            components=components,
            source_tensors={name: _token_bytes(each) for name, each in outputs.items() if name not in own},
        )

    def bytes(self, *, beam_size: int, rows: int, steps: int, width: int) -> int:
        """Return an upper bound of the memory of a decoding, in bytes.

        `rows` sentences of up to `steps` output tokens a hypothesis and `width` source tokens. Counted are keys and
        values of both in float32, one more array of them for the time in which buffers grow, attention scores and
        log-probabilities of one step, the mask, the attention that is kept for alignments, and twice the further
        tensors of sources.
        """
        vectors = self.step_vectors * beam_size
        positions, others = beam_size * steps + width, vectors - beam_size
        cached = (2 * self.layers + 1) * self.hidden_size * positions
        outputs = _STEP_COPIES + _COMPONENT_COPIES * (self.components - 1)
        scores = _STEP_COPIES * vectors * self.heads * (positions + others) + outputs * beam_size * self.vocab_size
        traced = AttentionTrace.BYTES * beam_size * steps
        further = 2 * width * sum(self.source_tensors.values())
        return rows * (4 * (cached + scores) + 2 * vectors * positions + traced + further)


def _token_bytes(tensor: TensorSpec) -> int:
    """Return the bytes of one token in a tensor of fixed axes and those of batch and source."""
    return math.prod(axis for axis in tensor.shape if isinstance(axis, int)) * np.dtype(tensor.dtype).itemsize


class Decoding:
    """Decoder steps of sentences that share a beam size. For one thread at a time.

    A sentence that joins takes a free slot, so that nothing but its own rows is written. Buffers have spare rows, so
    that sentences can join and leave without moving the others.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        footprint: Footprint,
        beam_size: int,
        end_id: int,
        idle_share: float,
        reuse_slots: bool = True,
        start_id: int | None = None,
        utf8: Utf8Tokens | None = None,
        attention: bool = False,
        slot_positions: bool = False,
    ) -> None:
        """`reuse_slots` and `slot_positions` say whether the graph of a step has the inputs `slots` and
        `slot_positions`, `attention` whether it has the output `attention`; outputs start after `start_id`, by default
        the end. `utf8` are the bytes of the output's tokens, where these are not whole characters.
        """
        self._backend = backend
        self._footprint = footprint
        self._end = end_id
        self.idle_share = idle_share
        """Fraction of slots that are kept free for sentences that join later; they are computed in every step."""
        self._reuse_slots, self._attention, self._slot_positions = reuse_slots, attention, slot_positions
        self.search = BeamSearch(beam_size, end_id, start_id, utf8)
        self._clear()

    def _clear(self) -> None:
        self._caches: dict[str, Array] = {}
        self._memory: dict[str, Array] = {}
        self._resident: Resident | None = None
        self._source_lengths = np.zeros(0, np.int64)
        self._slots = Slots(self.search.beam_size, reused=self._reuse_slots)

    def __len__(self) -> int:
        """Return the number of unfinished sentences."""
        return self.search.num_live

    def reserved_bytes(self, joining: Sequence[tuple[int, int]] = ()) -> int:
        """Return the memory that the decoding may come to take with its sentences and those that join, in bytes.

        `joining` holds the source length (its end included) and the output limit of each sentence.
        """
        live = self.search.num_live
        if not live and not joining:
            return 0
        rows = max(len(self.search), live + len(joining))
        room, width, slots = self._room, *self._sizes
        width = max([width, *(_rounded(length) for length, _ in joining)])
        steps = max([-(-slots // self.search.beam_size), self.search.longest + 1, *(limit + 1 for _, limit in joining)])
        return self._footprint.bytes(
            beam_size=self.search.beam_size, rows=max(room, _power(rows)), steps=steps, width=width
        )

    @property
    def _room(self) -> int:
        """Number of rows of the buffers."""
        return len(self._memory["memory_keys_0"]) if self._memory else 0

    @property
    def _sizes(self) -> tuple[int, int]:
        """Source tokens and slots of the buffers."""
        return (self._memory["memory_keys_0"].shape[2] if self._memory else 0), self._slots.count

    def add(self, sources: Sequence[Sequence[int]], searches: Iterable[tuple[object, SearchOptions, int]]) -> None:
        """Encode and add sources (ids without ends); `searches` holds the arguments of `BeamSearch.add` for each."""
        lengths = np.array([len(source) + 1 for source in sources])
        padded = np.full((len(sources), int(lengths.max())), self._end)
        for row, source in enumerate(sources):
            padded[row, : len(source)] = source
        inputs = {"source": padded, "source_lengths": lengths}
        names = [f"memory_{part}_{layer}" for layer in range(self._footprint.layers) for part in ("keys", "values")]
        everything = [*names, *self._footprint.source_tensors]
        written = dict(zip(everything, self._backend.run("encode", inputs, everything), strict=True))
        before = len(self.search)
        rows = np.array([self.search.add(*search) for search in searches])
        count = len(self.search)
        if count > before:
            self._synchronize()
            self._slots.resize(count, self._slots.count)
            self._source_lengths = np.append(self._source_lengths, np.ones(count - before, np.int64))
        self._source_lengths[rows], self._slots.visible[rows] = lengths, False
        self._clear_idle()
        if not self._memory:
            _, heads, _, size = written[names[0]].shape
            cache = np.zeros((0, heads, self._slots.count, size), np.float32)
            self._memory, self._caches = written, {name.removeprefix("memory_"): cache for name in names}
            self._rebuild(0, count, *self._sizes)
            return
        self._fit(before, count)
        for name, array in written.items():
            self._memory[name][rows, :, : array.shape[2]] = array
        if self._resident is not None:
            self._resident.reload()

    def _fit(self, before: int, count: int) -> None:
        """Fit the buffers to `count` sentences, of which the first `before` were there: attention reads all of them."""
        (width, slots), widest, enough = (
            self._sizes,
            int(self._source_lengths.max()),
            self._slots.enough(self.search.deepest),
        )
        if widest > width or _rounded(widest) <= _TIGHT * width:
            width = _rounded(widest)
        if enough <= _TIGHT * slots:
            slots = enough
            self._slots.resize(count, slots)
        self._rebuild(before, self._room if count <= self._room else _power(count), width, slots)

    def _rebuild(self, count: int, room: int, width: int, slots: int) -> None:
        """Resize the buffers to other numbers of rows, source tokens and slots, where they differ."""
        if self._memory["memory_keys_0"].shape[::2] != (room, width):
            self._synchronize()
            for name in self._memory:  # one after the other, so that at most one is there twice
                self._memory[name] = _resized(self._memory[name], count, room, width)
        if self._caches["keys_0"].shape[::2] != (room, slots):
            self._synchronize()
            for name in self._caches:
                self._caches[name] = _resized(self._caches[name], count, room, slots)

    def _synchronize(self) -> None:
        """Copy the device's state back into the buffers and end the resident computation."""
        for name, array in {} if self._resident is None else self._resident.state().items():
            if not np.may_share_memory(array, self._caches[name]):
                self._caches[name][: len(array)] = array
        self._resident = None

    def step(self) -> list[tuple[object, list[Hypothesis]]]:
        """Advance every sentence by one step; return key and n best hypotheses of each that finished."""
        if not self.search.num_live:
            return []
        search, count = self.search, len(self.search)
        self._clear_idle()
        self._make_room()
        reading = 1 if search.single else search.beam_size
        taken = self._slots.take(search.lengths, reading)
        if self._resident is None:
            caches = {name: array[:count] for name, array in self._caches.items()}
            memory = {name: array[:count] for name, array in self._memory.items()}
            self._resident = self._backend.resident("step", caches, memory)
        inputs = {
            "tokens": search.last_tokens[:, :reading],
            "positions": search.lengths,
            "slots": taken,
            "visible": self._slots.visible[:, :reading],
            "source_lengths": self._source_lengths,
            "k": np.array(search.num_candidates(self._footprint.vocab_size)),
        }
        if not self._reuse_slots:
            del inputs["slots"]
        if self._slot_positions:
            inputs["slot_positions"] = self._slots.positions
        outputs = ["log_probabilities", "candidates"]
        if self._attention:
            inputs["with_attention"] = np.array(search.traced)
            outputs += ["attention"] if search.traced else []
        origins, stopped = search.advance(*self._resident.run(inputs, outputs))
        self._slots.follow(origins)
        results = [(search.keys[row], search.best(row)) for row in stopped]
        if stopped:
            self._drop_idle()
        return results

    def cancel(self, keys: Iterable[object]) -> None:
        """Cancel sentences whose results are no longer needed."""
        gone = set(keys)
        self.search.free([row for row, key in enumerate(self.search.keys) if key in gone])
        self._drop_idle()

    def _clear_idle(self) -> None:
        """Let the slots of finished sentences need neither source tokens nor slots of the caches."""
        if self.search.num_live < len(self.search):
            idle = self.search.free_slots
            self._slots.visible[idle], self._source_lengths[idle] = False, 1

    def _make_room(self) -> None:
        """Enlarge the caches where the next step would not fit."""
        count, wanted = len(self.search), self._slots.wanted(self.search.deepest, self.search.longest)
        if wanted != self._slots.count:
            self._rebuild(count, self._room, self._sizes[0], wanted)
            self._slots.resize(count, wanted)

    def _drop_idle(self) -> None:
        """Release free slots beyond the fraction that is kept for sentences that join later."""
        idle = self.search.free_slots
        if len(idle) <= self.idle_share * len(self.search):
            return
        kept = self.search.remove(idle)
        if not len(kept):
            self._clear()
            return
        self._synchronize()
        self._source_lengths = self._source_lengths[kept]
        self._slots.keep(kept)
        moved = np.flatnonzero(kept != np.arange(len(kept)))
        for array in (*self._caches.values(), *self._memory.values()):
            array[moved] = array[kept[moved]]
        if self._room >= _SHRINK * len(kept):
            self._rebuild(len(kept), _power(len(kept)), *self._sizes)


def _rounded(width: int) -> int:
    """Return the buffer width for a source of `width` tokens."""
    return -(-width // _WIDTHS) * _WIDTHS


def _power(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def _resized(array: Array, count: int, room: int, size: int) -> Array:
    """Return a copy of the first `count` rows in `room` rows; the third axis is cut or padded to `size`."""
    common = min(size, array.shape[2])
    resized = np.zeros((room, array.shape[1], size, *array.shape[3:]), array.dtype)
    resized[:count, :, :common] = array[:count, :, :common]
    return resized
