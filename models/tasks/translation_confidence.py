"""How likely the translation of a sentence is to be acceptable: a logistic regression on signals of its search.

`training.tasks.translation.confidence` fits it. The signals follow from both texts and the search, without another run
of the model.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field

from models.bundle.contract import Contract, PositiveInt
from models.decoding.beam_search import Hypothesis

__all__ = ["FARTHEST", "SIGNALS", "Confidence", "Signal", "SignalName", "signals"]

SignalName = Literal[
    "mean_log_probability",
    "lowest_log_probability",
    "deviation",
    "unlikely",
    "source_length",
    "length_ratio",
    "length_difference",
    "token_characters",
    "failed_check",
    "copied",
    "other_language",
    "repetition",
    "excess_length",
    "overlap",
    "changed_other_language",
]
SIGNALS: tuple[SignalName, ...] = get_args(SignalName)
"""The signals that a confidence may depend on, see `signals`."""

_UNLIKELY = -2.0
"""Log-probability below which a token counts as unlikely."""
_LONG = 50
"""Tokens of a source beyond which its length is another signal."""
_POSSIBLE, _LEAST_PROBABLE = 0.1, 1e-6
"""Probability of a language from which on, and below which, all count alike: many single German words have 0.1."""
FARTHEST = 4.0
"""Deviations from the mean that a signal counts at most: a fit says nothing about signals farther away."""

Fraction = Annotated[float, Field(ge=0, le=1)]


class Signal(Contract):
    """One signal: it counts `weight` for each `deviation` that it is above `mean`."""

    mean: float
    """Mean of the sentences that the confidence was fitted on."""
    deviation: Annotated[float, Field(gt=0)]
    """Standard deviation of these sentences."""
    weight: float
    """Change of the log-odds of an acceptable translation."""


class Confidence(Contract):
    """The probability that a sentence's translation is acceptable, and how well it holds.

    Its measures are of sentences that it was not fitted on (cross-validation): those of the threshold of the validation
    split alone, the others of changed sentences and noise too.
    """

    signals: Annotated[dict[SignalName, Signal], Field(min_length=1)]
    """The signals that it depends on by name; those of bundles of earlier versions are fewer."""
    intercept: float
    """Log-odds of an acceptable translation where every signal has its mean."""
    poor_chrf: Annotated[float, Field(ge=0, le=100)]
    """chrF to the reference below which a translation was not acceptable."""
    threshold: Fraction
    """Confidence below which answers say `low_confidence`."""
    precision: Fraction
    """Fraction of the sentences below the threshold whose translation was poor."""
    recall: Fraction
    """Fraction of the poor translations that were below the threshold."""
    auroc: Fraction
    """Probability that a poor translation has less confidence than an acceptable one."""
    calibration_error: Fraction
    """Mean distance between confidence and frequency in ten bins of confidence (ECE)."""
    sentences: PositiveInt
    """Sentences that it was fitted on."""
    fitted_on: str = "validation split"
    """The pairs of sentences: the validation split of the recipe, or a file of that name."""

    def probability(self, found: Mapping[SignalName, float]) -> float:
        """Return the probability in [0, 1] that a translation with these signals is acceptable.

        It is that of the regression, multiplied by the fraction of the translation that is not repeated: the sentences
        of a fit have too few loops, in which each token is likely after the ones before.
        """
        odds = self.intercept
        for name, signal in self.signals.items():
            distance = (found[name] - signal.mean) / signal.deviation
            odds += signal.weight * max(-FARTHEST, min(FARTHEST, distance))
        return (1 - found["repetition"]) / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def signals(
    source: str,
    source_tokens: Sequence[int],
    target: str,
    hypothesis: Hypothesis,
    *,
    failed_check: bool,
    other_language: bool,
    language_probability: float,
) -> dict[SignalName, float]:
    """Return what the confidence in a sentence's translation depends on.

    `failed_check` says whether it lacks what it must keep or was cut off, `other_language` whether the source is in
    another language than the model reads, `language_probability` how probable that language is. Raises `ValueError` for
    a hypothesis that does not come from a search.
    """
    found: list[float] = hypothesis.token_log_probabilities.tolist()
    mean = sum(found) / len(found)
    ratio = math.log((len(hypothesis.tokens) + 1) / (len(source_tokens) + 1))
    overlap = _overlap(source.casefold(), target.casefold())
    return {
        "mean_log_probability": mean,
        "lowest_log_probability": min(found),
        "deviation": math.sqrt(sum((each - mean) ** 2 for each in found) / len(found)),
        "unlikely": sum(each < _UNLIKELY for each in found) / len(found),
        "source_length": math.log(len(source_tokens) + 1),
        "length_ratio": ratio,
        "length_difference": abs(ratio),
        "token_characters": len(source) / max(1, len(source_tokens)),
        "failed_check": float(failed_check),
        "copied": float(source.casefold() == target.casefold()),
        "other_language": float(other_language),
        "repetition": max(0.0, _repeated(hypothesis.tokens) - _repeated(source_tokens)),
        "excess_length": max(0.0, math.log((len(source_tokens) + 1) / _LONG)),
        "overlap": overlap,
        "changed_other_language": _evidence(language_probability) * (1 - overlap),
    }


def _evidence(probability: float) -> float:
    """Return how strongly a text is not in the language of that probability: 0 to 5, a factor of 10 each."""
    return math.log10(_POSSIBLE / min(_POSSIBLE, max(_LEAST_PROBABLE, probability)))


def _repeated(tokens: Sequence[int]) -> float:
    """Return the fraction of the trigrams of tokens that occurred before."""
    trigrams = list(zip(tokens, tokens[1:], tokens[2:], strict=False))
    return 1 - len(set(trigrams)) / len(trigrams) if trigrams else 0.0


def _overlap(source: str, target: str) -> float:
    """Return the fraction of a source's different trigrams of characters that its translation has."""
    ours = _trigrams(source)
    return len(ours & _trigrams(target)) / len(ours)


def _trigrams(text: str) -> set[str]:
    """Return the trigrams of characters of a text between two spaces, at least one."""
    padded = f" {text or ' '} "
    return {padded[first : first + 3] for first in range(len(padded) - 2)}
