"""Sequence-to-sequence models: sources in, n-best hypotheses out, many at a time."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from models.backend import Backend
from models.bundle.contract import SpecialTokens
from models.decoding.beam_search import Hypothesis, SearchOptions
from models.decoding.continuous import Decoding, Footprint
from models.errors import QueryError
from models.text.utf8 import Utf8Tokens

__all__ = ["BATCH_SOURCES", "MAX_BEAM_SIZE", "Decoder", "SourceSequence", "checked_options"]

MAX_BEAM_SIZE = 32
"""Larger beams do not find better translations (Koehn and Knowles 2017, section 3.6), but cost as much more."""
BATCH_SOURCES = 32
"""Sources that are decoded together."""

_REFILL = 1 / 4
"""Fraction of the slots that must be free before other sources join: one is encoded no faster than several."""
_IDLE_SHARE = 1 / 2
"""Fraction of the slots that are kept free for sources that join later."""


@dataclass(frozen=True, slots=True)
class SourceSequence:
    """A source to be decoded: a sentence to translate, or a text from which to generate another."""

    tokens: tuple[int, ...]
    """Token ids without the end token."""
    beam_size: int
    options: SearchOptions
    max_tokens: int
    """Limit of the output in tokens, the end not counted; it ends degenerate loops."""

    @property
    def length(self) -> int:
        """Number of tokens that the encoder reads."""
        return len(self.tokens) + 1

    @property
    def result_items(self) -> int:
        """Largest number of tokens of all outputs together."""
        return self.options.n_best * self.max_tokens


def checked_options(beam_size: int, options: SearchOptions | None) -> SearchOptions:
    """Return the options, or the defaults; raises `QueryError` where the beam is out of range or too small for them."""
    options = SearchOptions() if options is None else options
    if not 1 <= beam_size <= MAX_BEAM_SIZE:
        raise QueryError(f"beam_size must be between 1 and {MAX_BEAM_SIZE}, not {beam_size}")
    if options.n_best > beam_size:
        raise QueryError(f"n_best must be at most beam_size, which is {beam_size}, not {options.n_best}")
    return options


class Decoder:
    """Beam search of a bundle with the graphs `encode` and `step`. Safe to call from several threads."""

    def __init__(
        self,
        backend: Backend,
        footprint: Footprint,
        tokens: SpecialTokens,
        *,
        reuse_slots: bool,
        utf8: Utf8Tokens | None = None,
        attention: bool = False,
        slot_positions: bool = False,
    ) -> None:
        """`utf8` are the bytes of the output's tokens, where these are not whole characters.

        `attention` says whether the graph `step` has the output `attention`, `slot_positions` whether it has the input
        of that name.
        """
        self._backend, self._footprint, self._tokens, self._reuse_slots = backend, footprint, tokens, reuse_slots
        self._utf8, self._slot_positions = utf8, slot_positions
        self.attends = attention
        """Whether hypotheses can come with their attention."""

    def start(self, beam_size: int) -> Decoding:
        """Return an empty decoding, which sources can join."""
        return Decoding(
            self._backend,
            footprint=self._footprint,
            beam_size=beam_size,
            end_id=self._tokens.end,
            start_id=self._tokens.start,
            idle_share=_IDLE_SHARE,
            reuse_slots=self._reuse_slots,
            utf8=self._utf8,
            attention=self.attends,
            slot_positions=self._slot_positions,
        )

    def search(
        self, queries: Sequence[SourceSequence], batch_size: int = BATCH_SOURCES, *, parallel: int = 1
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, in order. Sources of each beam size are decoded together.

        Similar lengths are decoded together, `batch_size` at a time; the slots of finished sources are filled with the
        next ones. `parallel` decodings run at once, each in a thread: load the bundle with as many concurrent runs.
        Raises `ValueError` for a `batch_size` below 1.
        """
        if batch_size < 1:
            raise ValueError(f"at least 1 source must be decoded at once, not {batch_size}")
        found: dict[object, list[Hypothesis]] = {}
        for beam_size in sorted({query.beam_size for query in queries}):
            group = [each for each in enumerate(queries) if each[1].beam_size == beam_size]
            pending, decodings = _Pending(group), min(parallel, -(-len(group) // batch_size))
            if decodings <= 1:
                found |= self._decode(pending, batch_size)
                continue
            with ThreadPoolExecutor(decodings) as executor:
                parts = [executor.submit(self._decode, pending, batch_size) for _ in range(decodings)]
            for part in parts:
                found |= part.result()
        return [found[index] for index in range(len(queries))]

    def _decode(self, pending: "_Pending", batch_size: int) -> dict[object, list[Hypothesis]]:
        """Return the hypotheses of the sources that one decoding takes from the pending ones, by their index."""
        found: dict[object, list[Hypothesis]] = {}
        decoding: Decoding | None = None
        while True:
            group = pending.take(batch_size - (0 if decoding is None else len(decoding)), batch_size)
            if group:
                decoding = self.start(group[0][1].beam_size) if decoding is None else decoding
                searches = [(index, query.options, query.max_tokens) for index, query in group]
                decoding.add([query.tokens for _, query in group], searches)
            if decoding is None or not len(decoding):
                return found
            decoding.idle_share = _IDLE_SHARE if len(pending) else 0
            found |= decoding.step()


class _Pending:
    """Sources that no decoding has taken, by their index. Safe to use from several threads."""

    def __init__(self, queries: Sequence[tuple[int, SourceSequence]]) -> None:
        self._lock = threading.Lock()
        self._queries = sorted(queries, key=lambda each: each[1].length)  # the last, longest go first

    def __len__(self) -> int:
        return len(self._queries)

    def take(self, free: int, batch_size: int) -> list[tuple[int, SourceSequence]]:
        """Take up to `free` sources, none where that would be too few at once."""
        with self._lock:
            if free < min(len(self._queries), _REFILL * batch_size):
                return []
            return [self._queries.pop() for _ in range(min(free, len(self._queries)))]
