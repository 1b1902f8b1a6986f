"""Operations of encoders that give numbers of texts: parameters and records."""

from typing import Annotated, Literal

from pydantic import Field

from models.operations.operation import Record, Text, Truncated, TruncateParams
from models.operations.windows import WindowCount, WindowParams

__all__ = ["EmbedParams", "EmbedResult", "Precision", "RegressParams", "RegressResult", "RerankParams", "RerankResult"]


Precision = Literal["float32", "float16", "int8", "binary", "ubinary"]
"""Types of numbers of vectors, as sentence-transformers names them; `models.tasks.vector_precision` defines them."""


class EmbedParams(WindowParams):
    """What can be chosen of an embedding."""

    prompt: Annotated[
        Text | None,
        Field(
            description='Name of one of the model\'s prompts, such as "query", which is put before each text; "" is '
            "none. The model's own default without it."
        ),
    ] = None
    dimensions: Annotated[
        int | None,
        Field(
            ge=1,
            description="First dimensions to keep, of a model that was trained for it (matryoshka); unit vectors stay "
            "unit vectors.",
        ),
    ] = None
    normalize: Annotated[
        bool | None, Field(description="Whether the vector has length 1; as the model has it without this parameter.")
    ] = None
    precision: Annotated[
        Precision,
        Field(
            description="Type of the numbers: `float16`; `int8`, each element of a vector of length 1 times 127, "
            "rounded; `binary`, a bit for each dimension, 1 where the element is above 0, as bytes less 128; "
            "`ubinary`, the same as bytes."
        ),
    ] = "float32"


class EmbedResult(Record):
    """The vector of a text."""

    embedding: list[float] | list[int]
    """Its elements, rounded to 8 decimals; integers with such a precision."""
    truncated: Truncated = None
    windows: WindowCount = None


class RerankParams(TruncateParams):
    """What can be chosen of the scores of texts for a query."""

    query: Annotated[Text | None, Field(description="The query that each text is scored for; needed.")] = None
    activation: Annotated[
        Literal["sigmoid", "none"] | None,
        Field(description="Whether the score is a probability or the model's number; as the model has it without."),
    ] = None


class RerankResult(Record):
    """How well a text answers the query."""

    text: str
    """The text as it was sent."""
    score: float
    """Its score: the higher, the better."""
    truncated: Truncated = None


class RegressParams(WindowParams):
    """What can be chosen of the numbers of texts."""

    text_pair: Annotated[
        Text | None, Field(description="The second text of each text, for models of pairs, such as of similarity.")
    ] = None


class RegressResult(Record):
    """The number that a model gives a text."""

    text: str
    """The text as it was sent."""
    value: float
    """The number."""
    truncated: Truncated = None
    windows: WindowCount = None
