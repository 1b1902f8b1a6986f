"""Classification: parameters and records."""

from typing import Annotated

from pydantic import Field

from models.operations.operation import Params, Record, Text, Truncated, TruncateParams
from models.operations.windows import WindowCount, WindowParams

__all__ = [
    "MOST_CANDIDATES",
    "TEMPLATE",
    "CandidateLabels",
    "ClassifyImageParams",
    "ClassifyParams",
    "ClassifyResult",
    "LabelProbability",
    "Template",
    "ZeroShotParams",
    "ZeroShotResult",
]

MOST_CANDIDATES = 100
"""Candidate labels of a request: the model reads each text once for each."""
_MOST_CHARACTERS = 1000
"""Characters of a candidate label, and of the template."""
_NO_LABELS: list[str] = []
TEMPLATE = "This example is {}."
"""The template of requests that have none, that of transformers."""

CandidateLabels = Annotated[
    list[Annotated[Text, Field(min_length=1, max_length=_MOST_CHARACTERS)]],
    Field(max_length=MOST_CANDIDATES, description="The candidate labels of each text; needed."),
]
Template = Annotated[
    Text,
    Field(
        max_length=_MOST_CHARACTERS,
        description="The hypothesis whose entailment by the text is computed for each label, which takes the place of "
        "`{}`.",
    ),
]

TopK = Annotated[int, Field(ge=1, description="Classes to return; all where there are fewer.")]


class ClassifyImageParams(Params):
    """What can be chosen of the classification of an image."""

    top_k: TopK = 5


class ClassifyParams(WindowParams):
    """What can be chosen of the classification of a text."""

    top_k: TopK = 5
    text_pair: Annotated[
        Text | None,
        Field(description="The second text of each text, for models of pairs: the hypothesis that follows or not."),
    ] = None


class ZeroShotParams(TruncateParams):
    """What can be chosen of zero-shot classification."""

    labels: CandidateLabels = _NO_LABELS
    template: Template = TEMPLATE
    multi_label: Annotated[
        bool,
        Field(
            description="Whether several labels may hold: the probability of each one is then that of entailment "
            "against contradiction, as always where there is one label. Else the probabilities of all add up to 1."
        ),
    ] = False


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
    windows: WindowCount = None


class ZeroShotResult(Record):
    """The candidate labels of a text, most probable first."""

    text: str
    """The text as it was sent."""
    labels: list[LabelProbability]
    """The labels, most probable first."""
    truncated: Truncated = None
