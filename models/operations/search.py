"""Parameters and records of models that write texts: how their outputs are searched."""

from typing import Annotated

from pydantic import Field

from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import MAX_BEAM_SIZE
from models.operations.operation import Record, TruncateParams

__all__ = ["ScoredText", "SearchParams"]

_SEARCH_OPTIONS = ("n_best", "length_penalty", "temperature", "seed", "sparse")
"""Parameters that are options of the search under the same name."""


class SearchParams(TruncateParams):
    """How to search the outputs for a text."""

    beam_size: Annotated[int, Field(ge=1, le=MAX_BEAM_SIZE, description="1 is greedy search.")] = 5
    n_best: Annotated[int, Field(ge=1, le=MAX_BEAM_SIZE, description="Outputs to return.")] = 1
    length_penalty: Annotated[
        float, Field(ge=0, le=10, description="Rank by log-probability / length^this; 0 prefers short outputs.")
    ] = 1.0
    temperature: Annotated[
        float | None, Field(gt=0, le=100, description="Sample beam_size outputs instead of searching.")
    ] = None
    seed: Annotated[int, Field(ge=0, lt=2**63, description="Seed of the samples.")] = 0
    sparse: Annotated[bool, Field(description="Keep only the beam_size best words of each step, renormalized.")] = False

    def options(self) -> SearchOptions:
        """Return the options of the search."""
        return SearchOptions(**{name: getattr(self, name) for name in _SEARCH_OPTIONS})


class ScoredText(Record):
    """An output and its score: log-probability / length^length_penalty, summed over sentences."""

    text: str
    """The output."""
    score: float
    """Its score, at most 0; comparable for outputs of one text only."""
