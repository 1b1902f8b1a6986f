"""Classification: parameters and records."""

from typing import Annotated

from pydantic import Field

from models.operations.operation import Params, Record, Text, Truncated, TruncateParams

__all__ = ["ClassifyImageParams", "ClassifyParams", "ClassifyResult", "LabelProbability"]

TopK = Annotated[int, Field(ge=1, description="Classes to return; all where there are fewer.")]


class ClassifyImageParams(Params):
    """What can be chosen of the classification of an image."""

    top_k: TopK = 5


class ClassifyParams(TruncateParams):
    """What can be chosen of the classification of a text."""

    top_k: TopK = 5
    text_pair: Annotated[
        Text | None,
        Field(description="The second text of each text, for models of pairs: the hypothesis that follows or not."),
    ] = None


class LabelProbability(Record):
    """A class and its probability."""

    label: str
    """Name of the class."""
    probability: float
    """Its probability, above 0."""


class ClassifyResult(Record):
    """The classes of one text or image, most probable first.

    Classes of probability 0 are left out, so that a sparse-softmax may return fewer than asked for.
    """

    text: str | None = None
    """The text as it was sent; absent for an image."""
    labels: list[LabelProbability]
    """The classes, most probable first."""
    out_of_scope: Annotated[
        bool | None,
        Field(description="Whether the input is likely to be of no class; absent for a model that cannot tell."),
    ] = None
    truncated: Truncated = None
