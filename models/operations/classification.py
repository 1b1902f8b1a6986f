"""Classification: parameters and records."""

from typing import Annotated, Literal

from pydantic import Field

from models.operations.operation import Params, Record, Text, Truncated, TruncateParams
from models.operations.windows import WindowCount, WindowParams

__all__ = [
    "MOST_CANDIDATES",
    "TEMPLATE",
    "CalibrationChoice",
    "CandidateLabels",
    "ClassifyImageParams",
    "ClassifyParams",
    "ClassifyResult",
    "LabelProbability",
    "Template",
    "ZeroShotParams",
    "ZeroShotResult",
    "most_classes",
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


CalibrationChoice = Literal["fitted", "none"]


class ClassifyImageParams(Params):
    """What can be chosen of the classification of an image."""

    top_k: TopK = 5
    calibration: Annotated[
        CalibrationChoice,
        Field(
            description="With `fitted`, probabilities are calibrated as the model's manifest says, where it says how; "
            "with `none` they are those of the output layer."
        ),
    ] = "fitted"
    coverage: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Return the smallest set of classes that holds the right one with this probability, such as "
            "0.95, in place of `top_k` classes. The set is computed from the model's calibration examples, which must "
            "be enough for it.",
        ),
    ] = None
    randomized: Annotated[
        bool,
        Field(
            description="Make sets that have exactly the coverage on average, by a number drawn from the input. They "
            "may be empty. Without it sets cover at least as much, and hold the most probable class."
        ),
    ] = False
    class_conditional: Annotated[
        bool,
        Field(
            description="Keep the coverage within each class that has enough calibration examples, instead of over all "
            "classes together."
        ),
    ] = False


class ClassifyParams(ClassifyImageParams, WindowParams):
    """What can be chosen of the classification of a text."""

    text_pair: Annotated[
        Text | None,
        Field(description="The second text of each text, for models of pairs: the hypothesis that follows or not."),
    ] = None


def most_classes(params: ClassifyImageParams, classes: int) -> int:
    """Return the largest number of classes of a result, of a model with so many classes."""
    return classes if params.coverage is not None else min(params.top_k, classes)


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
    """The classes, most probable first; with `coverage`, those of the prediction set."""
    out_of_scope: Annotated[
        bool | None,
        Field(description="Whether the input is likely to be of no class; absent for a model that cannot tell."),
    ] = None
    calibration_examples: Annotated[
        int | None,
        Field(
            description="Examples that the prediction set was calibrated on; absent without the parameter `coverage`."
        ),
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
