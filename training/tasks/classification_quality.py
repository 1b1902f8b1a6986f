"""Quality of predicted probabilities of classes.

Shapes: `N` texts, `C` classes.

True classes from `C` on have no probability, since no training text has them: their texts count as errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.tasks.scope import ScopePoint
from training.tasks.examples import Examples, f1, mean
from training.tasks.ranked_classes import RankedClasses

__all__ = [
    "OUT_OF_SCOPE",
    "ClassificationQuality",
    "ScopeScores",
    "ScopeThreshold",
    "calibration_error",
    "examples_of",
    "measure",
    "measure_several",
    "measure_single",
    "measured",
    "out_of_scope_auroc",
    "scope_threshold",
    "scope_trade_off",
]

OUT_OF_SCOPE = "oos"
"""The out-of-scope label."""

Confidences = NDArray[np.float64]
"""`[N]`, the largest probability of each text."""

_BINS = 15
_THRESHOLDS = np.arange(1, 20) / 20
_REJECTED = np.concatenate([[0, 0.001, 0.002, 0.005], np.arange(0.01, 0.1, 0.005), np.arange(0.1, 0.51, 0.05)])
"""Fractions of examples of a class that thresholds are chosen by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassificationQuality:
    """Fractions in [0, 1]."""

    accuracy: float
    """Examples whose classes are exactly the predicted ones: subset accuracy, if there can be several."""
    micro_f1: float
    """F1 over all decisions, which is the accuracy if texts have one class each."""
    macro_f1: float
    """Mean over classes of each class's F1."""
    top_5: float
    """Texts with one of their classes among the five most probable."""
    calibration_error: float
    """Expected calibration error of the most probable class, in 15 bins (Guo et al. 2017, eq. 3)."""
    threshold: float | None = None
    """The least probability of a predicted class, if texts can have several."""

    @property
    def value(self) -> float:
        """The metric that models are selected by."""
        return self.accuracy if self.threshold is None else self.micro_f1

    def named(self) -> dict[str, float]:
        """Return the metrics by name, the one that models are selected by first."""
        several = self.threshold is not None
        if several:
            first = {"micro F1": self.micro_f1, "macro F1": self.macro_f1, "subset accuracy": self.accuracy}
        else:
            first = {"accuracy": self.accuracy, "macro F1": self.macro_f1}
        return {**first, "top-5 accuracy": self.top_5, "expected calibration error": self.calibration_error}


def measure(
    found: RankedClasses, labels: Sequence[Sequence[int]], *, several: bool, threshold: float | None
) -> ClassificationQuality:
    """Return `measure_several`, or `measure_single` if each text has one class."""
    if several:
        return measure_several(found, labels, threshold)
    return measure_single(found, [label for (label,) in labels])


def measure_single(found: RankedClasses, labels: Sequence[int]) -> ClassificationQuality:
    """Return the quality if each of the `N` texts has one class."""
    from sklearn.metrics import f1_score  # here and below, for with scipy it takes seconds

    right = found.best == labels
    accuracy = float(np.mean(right))
    return ClassificationQuality(
        accuracy=accuracy,
        micro_f1=accuracy,
        macro_f1=float(f1_score(labels, found.best, average="macro", zero_division=0)),
        top_5=_top_5(found, [(label,) for label in labels]),
        calibration_error=calibration_error(found.confidences, np.asarray(right)),
    )


def measure_several(
    found: RankedClasses, labels: Sequence[Sequence[int]], threshold: float | None = None
) -> ClassificationQuality:
    """Return the quality if texts can have several classes: predicted are the best and those from `threshold` on.

    Without `threshold`, it is that of 0.05 to 0.95 in steps of 0.05 with the highest micro F1.
    """
    right = _right(found, labels)
    totals = np.array([len(set(classes)) for classes in labels])
    if threshold is None:
        scores = [float(f1(_counts(found, right, totals, some).sum(0)[None])[0]) for some in _THRESHOLDS]
        threshold = float(_THRESHOLDS[int(np.argmax(scores))])
    counts = _counts(found, right, totals, threshold)
    return ClassificationQuality(
        accuracy=float(np.mean((counts[:, 1:] == 0).all(1))),
        micro_f1=float(f1(counts.sum(0)[None])[0]),
        macro_f1=_macro_f1(found, right, labels, threshold),
        top_5=_top_5(found, labels),
        calibration_error=calibration_error(found.confidences, right[:, 0]),
        threshold=threshold,
    )


def _right(found: RankedClasses, labels: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Return which of the kept classes are true ones, `[N, k]`."""
    rows = [np.isin(row, list(own)) for row, own in zip(found.classes, labels, strict=True)]
    return np.stack(rows) & (found.probabilities > 0)


def _counts(
    found: RankedClasses, right: NDArray[np.bool_], totals: NDArray[np.int64], threshold: float
) -> NDArray[np.float64]:
    """Return true positives, false positives and false negatives of each text, `[N, 3]`."""
    predicted = found.predicted(threshold)
    hits = (predicted & right).sum(1)
    return np.stack([hits, predicted.sum(1) - hits, totals - hits], 1).astype(np.float64)


def _macro_f1(
    found: RankedClasses, right: NDArray[np.bool_], labels: Sequence[Sequence[int]], threshold: float
) -> float:
    """Return the mean of each class's F1, which is 0 where a class is neither true nor predicted."""
    predicted, true = found.predicted(threshold), np.array([each for own in labels for each in set(own)], np.int64)
    size = max(found.count, int(true.max(initial=-1)) + 1)
    hits, said, meant = (
        np.bincount(each, minlength=size) for each in (found.classes[predicted & right], found.classes[predicted], true)
    )
    return float(np.mean(2 * hits / np.maximum(1, said + meant)))


def examples_of(found: RankedClasses, labels: Sequence[Sequence[int]], *, threshold: float | None) -> Examples:
    """Return what each of the `N` texts adds to the accuracy, or with a threshold, as texts can have several classes,
    to micro F1."""
    if threshold is None:
        right = found.best == [label for (label,) in labels]
        return Examples(np.stack([right, np.ones(len(right))], 1), mean)
    totals = np.array([len(set(classes)) for classes in labels])
    return Examples(_counts(found, _right(found, labels), totals, threshold), f1)


def _top_5(found: RankedClasses, labels: Sequence[Sequence[int]]) -> float:
    best = found.classes[:, :5].tolist()
    return float(np.mean([bool(set(row) & set(classes)) for row, classes in zip(best, labels, strict=True)]))


def calibration_error(confidences: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Return the mean distance of confidence and accuracy in 15 bins of equal width, weighted by size: `[N]`, `[N]`."""
    bins = np.minimum((confidences * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, confidences - right, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(right))


def out_of_scope_auroc(inside: Confidences, outside: Confidences) -> float:
    """Return how well a score separates texts of a class from texts of none, such as the largest probability
    (Hendrycks, Gimpel 2017).

    It is the area under the receiver operating characteristic: `[N]`, `[M]` -> 0.5 for chance, 1 for no error.
    """
    from sklearn.metrics import roc_auc_score

    scores = np.concatenate([inside, outside])
    truth = np.repeat([1, 0], [len(inside), len(outside)])
    return float(roc_auc_score(truth, scores))


@dataclass(frozen=True, slots=True)
class ScopeScores:
    """Numbers by which examples of a class are told from examples of none: higher for the former."""

    inside: Confidences
    """Those of examples of a class, `[N]`."""
    outside: Confidences
    """Those of examples of no class, `[M]`."""

    @property
    def auroc(self) -> float:
        """How well they are told apart, see `out_of_scope_auroc`."""
        return out_of_scope_auroc(self.inside, self.outside)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScopeThreshold:
    """The least score of the best class of an example that is in scope, and the fractions below it."""

    threshold: float
    detected: float
    """Fraction of the examples of no class below it."""
    rejected: float
    """Fraction of the examples of a class below it."""


def scope_threshold(inside: Confidences, outside: Confidences, threshold: float | None = None) -> ScopeThreshold:
    """Return a threshold of the best class's probability or score, and the fractions below it: `[N]`, `[M]`.

    Without `threshold` it is the least one whose `detected - rejected` (Youden 1950) is within one standard error of
    the largest: few examples of no class decide between thresholds that reject very different numbers of examples.
    """
    of_a_class, of_none = np.sort(inside), np.sort(outside)
    if threshold is None:
        values = np.unique(np.concatenate([of_a_class, of_none]))
        middles = np.round((values[1:] + values[:-1]) / 2, 4)
        fractions = [np.searchsorted(each, middles) / len(each) for each in (of_none, of_a_class)]
        gains = fractions[0] - fractions[1]
        variances = [part * (1 - part) / len(each) for part, each in zip(fractions, (of_none, of_a_class), strict=True)]
        best = int(np.argmax(gains))
        sufficient = gains >= gains[best] - np.sqrt(variances[0][best] + variances[1][best])
        threshold = float(middles[int(np.argmax(sufficient))])
    detected, rejected = (float(np.mean(each < threshold)) for each in (of_none, of_a_class))
    return ScopeThreshold(threshold=threshold, detected=round(detected, 4), rejected=round(rejected, 4))


def scope_trade_off(inside: Confidences, outside: Confidences | None) -> list[ScopePoint]:
    """Return thresholds of the best class's probability or score by the fraction of examples of a class below them.

    `[N]`, `[M]` or None; ascending, each with the fractions below it.
    """
    of_a_class = np.sort(inside)
    of_none = None if outside is None or not len(outside) else outside
    quantiles = np.quantile(of_a_class, _REJECTED, method="lower")
    thresholds = np.unique(np.floor(1e6 * quantiles) / 1e6)  # no higher, so that no more are below
    return [
        ScopePoint(
            threshold=float(each),
            rejected=round(float(np.mean(of_a_class < each)), 4),
            detected=None if of_none is None else round(float(np.mean(of_none < each)), 4),
        )
        for each in thresholds
    ]


def measured(
    found: RankedClasses,
    labels: Sequence[Sequence[int]],
    outside: RankedClasses | None,
    names: Sequence[str],
    *,
    several: bool,
    threshold: float | None,
) -> dict[str, float]:
    """Return all metrics on `N` texts and, for out-of-scope detection, on texts of no class.

    `names` are those of the `C` classes; one called `oos` counts as no class there.
    """
    metrics = measure(found, labels, several=several, threshold=threshold).named()
    if outside is not None:
        left_out = names.index(OUT_OF_SCOPE) if OUT_OF_SCOPE in names else None
        inside = np.array([any(each < len(names) and each != left_out for each in classes) for classes in labels])
        sides = (found.best_other(left_out)[inside], outside.best_other(left_out))
        metrics["out-of-scope AUROC"] = out_of_scope_auroc(*sides)
    return metrics
