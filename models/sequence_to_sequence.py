"""What translators and text generators have in common: sources in, n-best hypotheses out, many at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from models.backend import Backend
from models.beam_search import Hypothesis, SearchOptions
from models.decoding import Decoding, Footprint
from models.errors import QueryError
from models.manifest import Manifest
from models.networks import TransformerNetwork, UnilmNetwork

__all__ = ["BATCH_SOURCES", "MAX_BEAM_SIZE", "SequenceToSequenceModel", "SourceQuery", "checked_options"]

MAX_BEAM_SIZE = 32
"""Larger beams do not find better translations (Koehn and Knowles 2017, section 3.6), but cost as much more."""
BATCH_SOURCES = 32
"""Sources that are decoded together."""

_REFILL = 1 / 4
"""Places that are free, as a share of all, before other sources join: one is read no faster than several."""
_IDLE_SHARE = 1 / 2
"""Places that are kept for sources to come."""


@dataclass(frozen=True, slots=True)
class SourceQuery:
    """A source to be decoded: a sentence to be translated, or a text from which to write another."""

    tokens: tuple[int, ...]
    """Without the end."""
    beam_size: int
    options: SearchOptions
    max_tokens: int
    """Tokens its output may have, the end not counted, which ends degenerate loops."""

    @property
    def length(self) -> int:
        """Tokens that the encoder reads."""
        return len(self.tokens) + 1

    @property
    def result_items(self) -> int:
        """Tokens that the outputs may have together."""
        return self.options.n_best * self.max_tokens


def checked_options(beam_size: int, options: SearchOptions | None) -> SearchOptions:
    """The options, or the usual ones; raises `QueryError` where the beam is out of range or too small for them."""
    options = SearchOptions() if options is None else options
    if not 1 <= beam_size <= MAX_BEAM_SIZE:
        raise QueryError(f"beam_size must be between 1 and {MAX_BEAM_SIZE}, not {beam_size}")
    if options.n_best > beam_size:
        raise QueryError(f"n_best must be at most beam_size, which is {beam_size}, not {options.n_best}")
    return options


class SequenceToSequenceModel:
    """A loaded bundle with the graphs `encode` and `step`. Safe to call from several threads."""

    def __init__(self, manifest: Manifest, backend: Backend, layers: int) -> None:
        """`layers` are those that a step has caches of."""
        self.manifest = manifest
        self.backend = backend
        network = manifest.network
        assert isinstance(network, TransformerNetwork | UnilmNetwork)
        self._footprint = Footprint(
            layers=layers,
            heads=network.heads,
            hidden_size=network.hidden_size,
            vocab_size=manifest.text.vocab_size,
        )

    def start(self, beam_size: int) -> Decoding:
        """An empty decoding, which sources can join."""
        return Decoding(
            self.backend,
            footprint=self._footprint,
            beam_size=beam_size,
            end_id=self.manifest.text.special_tokens.end,
            idle_share=_IDLE_SHARE,
        )

    def search(self, queries: Sequence[SourceQuery], batch_size: int = BATCH_SOURCES) -> list[list[Hypothesis]]:
        """The hypotheses of each source, of one beam size, in order.

        Similar lengths are decoded together; places of sources that are over are filled with the next ones. Raises
        `ValueError` for a `batch_size` below 1.
        """
        if batch_size < 1:
            raise ValueError(f"at least 1 source must be decoded at once, not {batch_size}")
        found: dict[object, list[Hypothesis]] = {}
        waiting = sorted(range(len(queries)), key=lambda index: queries[index].length)  # the last, longest go first
        decoding = self.start(queries[0].beam_size) if queries else None
        while decoding is not None and (waiting or len(decoding)):
            free = batch_size - len(decoding)
            if waiting and free >= min(len(waiting), _REFILL * batch_size):
                group = [waiting.pop() for _ in range(min(free, len(waiting)))]
                searches = [(index, queries[index].options, queries[index].max_tokens) for index in group]
                decoding.add([queries[index].tokens for index in group], searches)
            decoding.idle_share = _IDLE_SHARE if waiting else 0
            found |= decoding.step()
        return [found[index] for index in range(len(queries))]
