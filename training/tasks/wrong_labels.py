"""Labels that are likely wrong: those that a classifier of the other texts is confident against.

It is confident learning (Northcutt et al. 2021, section 3) with logistic regression on TF-IDF: each text is classified
by a model of the folds without it, and is suspicious where another class is more probable than its own, and at least as
probable as it is on average for the texts that have that class.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from training.tasks.baselines import MOST_FEATURES, tfidf_regression, too_large

__all__ = ["Suspect", "likely_wrong"]

_FOLDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """A text whose label is likely wrong."""

    place: int
    """Its place among the texts."""
    suggested: str
    """The most probable class."""
    probability: float
    """That of the suggested class, by a model without the text."""


def likely_wrong(texts: Sequence[str], labels: Sequence[str]) -> list[Suspect]:
    """Return the texts whose label is likely wrong, the most suspicious first.

    Classes of fewer texts than folds are left out. Raises `ValueError` where fewer than two classes are left,
    and where classes and texts are too many for the regression.
    """
    counts = Counter(labels)
    kept = [place for place, label in enumerate(labels) if counts[label] >= _FOLDS]
    if len({labels[place] for place in kept}) < 2:
        raise ValueError(
            f"wrong labels are looked for among classes of at least {_FOLDS} texts; there are fewer than two"
        )
    if large := too_large([(labels[place],) for place in kept], MOST_FEATURES):
        raise ValueError(
            f"wrong labels are looked for by logistic regression on TF-IDF, and {large.reason}: give a file with the "
            "texts of some of the classes"
        )
    return sorted(_suspects(texts, labels, kept), key=lambda each: -each.probability)


def _suspects(texts: Sequence[str], labels: Sequence[str], kept: Sequence[int]) -> Iterator[Suspect]:
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    own = [labels[place] for place in kept]
    classes = sorted(set(own))
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    found = cross_val_predict(
        tfidf_regression(), [texts[place] for place in kept], own, cv=folds, method="predict_proba"
    )
    given = np.array([classes.index(label) for label in own])
    rows = np.arange(len(given))
    usual = np.array([found[given == each, each].mean() for each in range(len(classes))])
    best = found.argmax(1)
    wrong = (best != given) & (found[rows, best] >= usual[best])
    for row in np.flatnonzero(wrong):
        yield Suspect(place=kept[int(row)], suggested=classes[best[row]], probability=float(found[row, best[row]]))
