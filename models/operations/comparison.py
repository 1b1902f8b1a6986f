"""How two results of an operation for the same input are compared, such as those of two versions of a model.

An operation names its comparison (`Operation.compare`); without one, results agree where their records are equal.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "Comparison",
    "chrf",
    "compare_classes",
    "compare_entities",
    "compare_numbers",
    "compare_scores",
    "compare_texts",
    "compare_vectors",
    "compare_words",
]

_ORDER, _BETA = 6, 2
"""Longest character n-grams of chrF, and the weight of recall."""
_MAX_CHARACTERS = 20_000
"""Characters of a text that chrF reads."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results for one input, compared; the first is that of the model that is compared with."""

    agrees: bool | None = None
    """Whether the results are the same for a client that reads the best answer; None where they are numbers."""
    scores: tuple[float, float] | None = None
    """Scores of the same answer by both, whose correlation over inputs is of interest."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Other numbers, whose means over inputs are of interest, by name."""


def compare_classes(first: Any, second: Any) -> Comparison:
    """Compare the probabilities of classes, most probable first: the same best class, and the same set of classes."""
    if not first.labels or not second.labels:
        return Comparison(agrees=not first.labels and not second.labels)
    ours, theirs = ({each.label: each.probability for each in some.labels} for some in (first, second))
    best = first.labels[0].label
    scores = ours[best], theirs.get(best, 0.0)
    measures = {"same_set": float(ours.keys() == theirs.keys()), "probability_difference": scores[1] - scores[0]}
    outside = getattr(first, "out_of_scope", None) == getattr(second, "out_of_scope", None)
    return Comparison(best == second.labels[0].label and outside, scores, measures)


def compare_entities(first: Any, second: Any) -> Comparison:
    """Compare labelled parts of a text: the same parts with the same labels, and F1 of those of the second."""
    ours, theirs = ({(each.label, each.start, each.end) for each in some.entities} for some in (first, second))
    f1 = 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 1.0
    return Comparison(ours == theirs, measures={"f1": f1})


def compare_numbers(attribute: str) -> Callable[[Any, Any], Comparison]:
    """Return the comparison of results that are one number, an attribute of that name."""

    def compare(first: Any, second: Any) -> Comparison:
        scores = float(getattr(first, attribute)), float(getattr(second, attribute))
        return Comparison(scores=scores, measures={"difference": scores[1] - scores[0]})

    return compare


def compare_scores(first: Any, second: Any) -> Comparison:
    """Compare the log-probabilities that language models give a text."""
    scores = float(first.log_probability), float(second.log_probability)
    return Comparison(scores=scores, measures={"log_probability_difference": scores[1] - scores[0]})


def compare_words(first: Any, second: Any) -> Comparison:
    """Compare next words, most probable first: the same best word, and how many of the words are the same."""
    if not first.words or not second.words:
        return Comparison(agrees=not first.words and not second.words)
    ours, theirs = ({each.word: each.probability for each in some.words} for some in (first, second))
    best = first.words[0].word
    measures = {"same_set": float(ours.keys() == theirs.keys()), "overlap": len(ours & theirs.keys()) / len(ours)}
    return Comparison(best == second.words[0].word, (ours[best], theirs.get(best, 0.0)), measures)


def compare_texts(attribute: str) -> Callable[[Any, Any], Comparison]:
    """Return the comparison of generated texts, best first, with scores: the same best text, and chrF of both."""

    def compare(first: Any, second: Any) -> Comparison:
        ours, theirs = getattr(first, attribute)[0], getattr(second, attribute)[0]
        measures = {"chrf": chrf(theirs.text, ours.text), "log_probability_difference": theirs.score - ours.score}
        return Comparison(ours.text == theirs.text, (ours.score, theirs.score), measures)

    return compare


def compare_vectors(first: Any, second: Any) -> Comparison:
    """Compare vectors of one space by their cosine; those of other sizes disagree."""
    ours, theirs = (np.asarray(each.vector, float).ravel() for each in (first, second))
    if ours.shape != theirs.shape:
        return Comparison(agrees=False)
    norms = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
    return Comparison(measures={"cosine": float(ours @ theirs) / norms if norms else 1.0})


def chrf(hypothesis: str, reference: str) -> float:
    """Return chrF2 of two texts, from 0 to 100 (Popović 2015): the F-score of character n-grams up to six.

    As `sacrebleu.sentence_chrf`: spaces do not count, and precision and recall are averaged over the orders that both
    texts have.
    """
    texts = ["".join(text[:_MAX_CHARACTERS].split()) for text in (hypothesis, reference)]
    parts = []
    for order in range(1, _ORDER + 1):
        ours, theirs = (Counter(text[i : i + order] for i in range(len(text) - order + 1)) for text in texts)
        if ours and theirs:
            parts.append([(ours & theirs).total() / some.total() for some in (ours, theirs)])
    if not parts:
        return 100.0 if texts[0] == texts[1] else 0.0
    precision, recall = (sum(some) / len(parts) for some in zip(*parts, strict=True))
    bottom = _BETA**2 * precision + recall
    return 100 * (1 + _BETA**2) * precision * recall / bottom if bottom else 0.0
