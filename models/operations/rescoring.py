"""Rescoring of n-best lists: parameters and records."""

from typing import Annotated

from pydantic import Field

from models.decoding.rescoring import MAX_WEIGHT, Weights
from models.operations.language import Finite
from models.operations.operation import Record, Truncated, TruncateParams

__all__ = ["RescoreParams", "RescoreResult", "RescoredHypothesis"]


class RescoreParams(TruncateParams):
    """What can be chosen of rescoring."""

    lm_weight: Annotated[
        float, Field(ge=0, le=MAX_WEIGHT, description="Weight of the model's log-probability, which has base e.")
    ] = 1.0
    length_reward: Annotated[
        float, Field(ge=-MAX_WEIGHT, le=MAX_WEIGHT, description="Added for each word, which white space separates.")
    ] = 0.0

    def weights(self) -> Weights:
        """Return the weights of the combined score."""
        return Weights(lm_weight=self.lm_weight, length_reward=self.length_reward)


class RescoredHypothesis(Record):
    """A hypothesis: total = score + lm_weight * log_probability + length_reward * words."""

    place: int
    """Its index in the list as it was sent."""
    text: str
    """The text as it was sent."""
    total: Annotated[Finite, Field(description="The combined score; `null` where it is minus infinity.")]
    score: float
    """The score of the first pass as it was sent."""
    log_probability: Annotated[
        Finite, Field(description="That of the model, base e, as `/v1/score` has it; `null` for probability 0.")
    ]
    words: int
    """Number of words, which white space separates."""
    truncated: Truncated = Field(default=None, exclude_if=lambda value: value is None)


class RescoreResult(Record):
    """The hypotheses of one list, best first.

    Those of probability 0 come last. Among equal totals the score decides, then the place.
    """

    hypotheses: list[RescoredHypothesis]
    """The hypotheses, best first."""
