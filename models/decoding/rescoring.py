"""Rescoring of n-best lists: the score of a first pass and the log-probability of a language model, added up.

A recognizer (of speech, of handwriting, of typing) proposes several hypotheses of an utterance with scores of its own.
The rank of a hypothesis follows from the log-linear combination

    total = score + lm_weight * log_probability + length_reward * words

with natural logarithms and words that white space separates. A log-probability falls with the length of a text;
`length_reward` compensates for that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MAX_WEIGHT", "Hypothesis", "Rescored", "Weights", "rescored"]

MAX_WEIGHT = 1e6
"""Largest absolute value of a weight, so that sums of finite scores stay finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of the combination. Raises `ValueError` for numbers outside their range."""

    lm_weight: float = 1.0
    """Weight of the log-probability, at least 0."""
    length_reward: float = 0.0
    """Added for each word; negative values prefer short hypotheses."""

    def __post_init__(self) -> None:
        if not 0 <= self.lm_weight <= MAX_WEIGHT:
            raise ValueError(f"lm_weight must be from 0 to {MAX_WEIGHT:.0f}, not {self.lm_weight}")
        if not -MAX_WEIGHT <= self.length_reward <= MAX_WEIGHT:
            raise ValueError(
                f"length_reward must be from {-MAX_WEIGHT:.0f} to {MAX_WEIGHT:.0f}, not {self.length_reward}"
            )

    def total(self, score: float, log_probability: float, words: int) -> float:
        """Return the combined score, minus infinity where the probability is 0 and has a weight."""
        weighted = self.lm_weight * log_probability if self.lm_weight else 0.0
        return score + weighted + self.length_reward * words


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text that the first pass proposes."""

    text: str
    score: float = 0.0
    """Its score in the first pass, finite; higher is better."""

    @property
    def words(self) -> int:
        """Return the number of words, which white space separates."""
        return len(self.text.split())


@dataclass(frozen=True, slots=True)
class Rescored:
    """A hypothesis with the parts of its combined score."""

    place: int
    """Its index in the list as it was given."""
    text: str
    score: float
    """Its score in the first pass."""
    log_probability: float
    """That of the language model, base e; minus infinity for probability 0."""
    words: int
    total: float
    """The combined score; minus infinity for probability 0, unless `lm_weight` is 0."""


def rescored(hypotheses: Sequence[Hypothesis], log_probabilities: Sequence[float], weights: Weights) -> list[Rescored]:
    """Return the hypotheses of a list by descending total.

    Hypotheses of probability 0 come last. Among equal totals, the score of the first pass decides, then the place.
    Raises `ValueError` where there is not one log-probability, a number or minus infinity, for each hypothesis.
    """
    found = []
    for place, (each, log_probability) in enumerate(zip(hypotheses, log_probabilities, strict=True)):
        if math.isnan(log_probability) or log_probability == math.inf:
            raise ValueError(f"the log-probability of hypothesis {place + 1} is {log_probability}")
        total = weights.total(each.score, log_probability, each.words)
        found.append(Rescored(place, each.text, each.score, log_probability, each.words, total))
    return sorted(found, key=lambda each: (-each.total, -each.score, each.place))
