"""Text generation: parameters and records."""

from typing import Annotated

from pydantic import Field

from models.operations.operation import Record, Truncated
from models.operations.search import ScoredText, SearchParams

__all__ = ["GenerateParams", "GenerateResult"]


class GenerateParams(SearchParams):
    """What can be chosen of the generation of a text."""

    max_output_tokens: Annotated[
        int | None,
        Field(ge=1, description="Where an output that has not ended is cut off."),
    ] = None


class GenerateResult(Record):
    """The outputs for one text, best first."""

    text: str
    """The text as it was sent."""
    outputs: list[ScoredText]
    """The `n_best` outputs, best first."""
    truncated: Truncated = None
