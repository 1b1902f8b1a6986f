"""Token classification: parameters and records."""

from typing import Annotated, Literal

from pydantic import Field

from models.operations.operation import Record, Text, Truncated, TruncateParams

__all__ = ["Aggregation", "EntityResult", "TagParams", "TagResult"]

Aggregation = Literal["none", "simple", "first", "average", "max"]
"""How the labels of tokens become entities, as transformers names it."""

_OTHERS = ["O"]
"""The label of tokens outside of all entities."""
_MOST_IGNORED = 1000
"""Labels that a request may leave out."""


class TagParams(TruncateParams):
    """What can be chosen of the entities of a text."""

    aggregation: Annotated[
        Aggregation,
        Field(
            description="`none` returns a label for each token. `simple` joins adjacent tokens of the same label, of "
            "which prefixes `B-` and `I-` are removed; a token with `B-` begins another entity. `first`, `average` and "
            "`max` first give all tokens of a word one label: that of its first token, that of the highest mean "
            "probability, or that of the token with the highest probability."
        ),
    ] = "simple"
    ignore_labels: Annotated[
        list[Text],
        Field(max_length=_MOST_IGNORED, description="Labels of which no entities are returned; `O` is that of others."),
    ] = _OTHERS
    min_score: Annotated[float, Field(ge=0, le=1, description="Least probability of an entity that is returned.")] = 0.0
    overlap: Annotated[
        int | None,
        Field(
            ge=0,
            description="Read a text that is longer than the limit in windows, each of which begins with so many last "
            "tokens of the one before; of entities of two windows that overlap, the longer one is returned. Needs an "
            "aggregation other than `none`. Without it such a text is refused, or cut with `truncate`.",
        ),
    ] = None


class EntityResult(Record):
    """A part of a text with its label."""

    label: str
    """The label; without `B-` or `I-`, but with the aggregation `none`."""
    start: int
    """Its first character in the text as sent."""
    end: int
    """The character after its last one."""
    text: str
    """These characters of the text."""
    score: float
    """Probability of the label: of the token, or the mean over the entity's tokens or words."""


class TagResult(Record):
    """The entities of a text."""

    text: str
    """The text as it was sent."""
    entities: list[EntityResult]
    """The entities, in their order in the text."""
    truncated: Truncated = None
