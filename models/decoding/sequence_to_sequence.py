"""Sequence-to-sequence models: sources in, n-best hypotheses out, many at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from models.backend import Backend
from models.decoding.beam_search import Hypothesis, SearchOptions
from models.decoding.continuous import Decoding, Footprint
from models.errors import QueryError

__all__ = ["BATCH_SOURCES", "MAX_BEAM_SIZE", "Decoder", "SourceQuery", "checked_options"]

MAX_BEAM_SIZE = 32
"""Larger beams do not find better translations (Koehn and Knowles 2017, section 3.6), but cost as much more."""
BATCH_SOURCES = 32
"""Sources that are decoded together."""

_REFILL = 1 / 4
"""Fraction of the slots that must be free before other sources join: one is encoded no faster than several."""
_IDLE_SHARE = 1 / 2
"""Fraction of the slots that are kept free for sources that join later."""


@dataclass(frozen=True, slots=True)
class SourceQuery:
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

    def __init__(self, backend: Backend, footprint: Footprint, end_id: int, *, reuse_slots: bool) -> None:
        self._backend, self._footprint, self._end, self._reuse_slots = backend, footprint, end_id, reuse_slots

    def start(self, beam_size: int) -> Decoding:
        """Return an empty decoding, which sources can join."""
        return Decoding(
            self._backend,
            footprint=self._footprint,
            beam_size=beam_size,
            end_id=self._end,
            idle_share=_IDLE_SHARE,
            reuse_slots=self._reuse_slots,
        )

    def search(self, queries: Sequence[SourceQuery], batch_size: int = BATCH_SOURCES) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, in order; all sources have one beam size.

        Similar lengths are decoded together; the slots of finished sources are filled with the next ones. Raises
        `ValueError` for a `batch_size` below 1.
        """
        if batch_size < 1:
            raise ValueError(f"at least 1 source must be decoded at once, not {batch_size}")
        found: dict[object, list[Hypothesis]] = {}
        pending = sorted(range(len(queries)), key=lambda index: queries[index].length)  # the last, longest go first
        decoding = self.start(queries[0].beam_size) if queries else None
        while decoding is not None and (pending or len(decoding)):
            free = batch_size - len(decoding)
            if pending and free >= min(len(pending), _REFILL * batch_size):
                group = [pending.pop() for _ in range(min(free, len(pending)))]
                searches = [(index, queries[index].options, queries[index].max_tokens) for index in group]
                decoding.add([queries[index].tokens for index in group], searches)
            decoding.idle_share = _IDLE_SHARE if pending else 0
            found |= decoding.step()
        return [found[index] for index in range(len(queries))]
