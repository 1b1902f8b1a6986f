"""Calibrated probabilities and prediction sets of classifiers, fitted on validation examples.

Shapes: `N` examples, `C` all classes of the model, the unlisted one included. All log-probabilities are base e.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.tasks.class_calibration import Calibration, log_softmax
from models.tasks.prediction_sets import Penalty, PredictionSets, SetPredictor, true_class_rows

__all__ = [
    "SCORES",
    "FittedCalibration",
    "ValidationExamples",
    "fit_calibration",
    "fit_sets",
    "fitting_sample",
    "log_losses",
]

SCORES = "calibration_scores.bin"
"""File of a bundle."""

LogProbabilities = NDArray[np.float64]
Truth = NDArray[np.bool_]
T = TypeVar("T")

MOST_CLASSES = 4096
"""Classes up to which probabilities are calibrated: those of all of them leave the graph for each input."""
_MOST_NUMBERS = 1 << 23
"""Log-probabilities of all examples, by which calibration, sets and thresholds are fitted; some copies are made."""
_LEAST_EXAMPLES = 20
"""Examples from which on something is fitted."""
_MOST_SCORES = 10_000
"""Calibration examples that a bundle keeps, 16 bytes each."""
_FOR_PENALTY = 5
"""Every so many examples, one is for the choice of the penalty, and none of the calibration examples."""
_LEAST_FOR_PENALTY = 100
_FLOOR = np.log(1e-7)
"""Least log-probability that a loss counts: a sparse-softmax gives true classes probability 0."""
_FOR_VECTORS = 10
"""Examples of each class on average from which on vector scaling is tried: it has two numbers for each class."""
_PRIOR = 1.0
"""Weight of the squared distance of vector scaling from the temperature, in examples."""
_PENALTIES = tuple(
    Penalty(weight=weight, free_ranks=ranks) for weight in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5) for ranks in (1, 2, 3, 5)
)
_LEVELS = (0.9, 0.95, 0.99)
"""Coverages whose sets are compared to choose a penalty."""


@dataclass(frozen=True, slots=True)
class ValidationExamples:
    """Examples with the log-probabilities of the output layer and their true classes."""

    log_probabilities: LogProbabilities
    """`[N, C]`."""
    truth: Truth
    """`[N, C]`, one class of each row, or several."""
    several: bool = False
    """Whether an example can have several classes."""

    @classmethod
    def of(cls, log_probabilities: LogProbabilities, labels: Sequence[Sequence[int]], *, several: bool) -> Self:
        """Return the examples whose classes the model has; others are left out."""
        count = log_probabilities.shape[1]
        kept = [row for row, classes in enumerate(labels) if classes and max(classes) < count]
        truth = np.zeros((len(kept), count), bool)
        for place, row in enumerate(kept):
            truth[place, list(labels[row])] = True
        return cls(log_probabilities[kept].astype(np.float64), truth, several)

    @classmethod
    def labelled(cls, model: Any, texts: Sequence[str], labels: Sequence[str], *, several: bool) -> Self:
        """Return texts with the log-probabilities of a loaded bundle; several labels are separated by commas.

        Raises `ValueError` for a label that the model does not have.
        """
        given = [each.split(",") if several else [each] for each in labels]
        unknown = sorted({label for some in given for label in some if label not in model.number_of})
        if unknown:
            raise ValueError(f"labels that the model does not have: {', '.join(unknown[:10])}")
        rows = fitting_sample(range(len(texts)), len(model.labels))
        numbers = [[model.number_of[label] for label in given[row]] for row in rows]
        return cls.of(model.log_probabilities([texts[row] for row in rows]), numbers, several=several)

    def __len__(self) -> int:
        return len(self.truth)

    def part(self, rows: NDArray[np.intp]) -> "ValidationExamples":
        """Return some of the examples."""
        return ValidationExamples(self.log_probabilities[rows], self.truth[rows], self.several)


def fitting_sample(examples: Sequence[T], classes: int) -> list[T]:
    """Return examples by which calibration, sets and thresholds are fitted: all, or as many as memory is bounded for.

    These are drawn at random, by a fixed seed, and keep their order.
    """
    most = max(_LEAST_EXAMPLES, _MOST_NUMBERS // classes)
    if len(examples) <= most:
        return list(examples)
    rows = np.random.default_rng(0).choice(len(examples), most, replace=False)
    return [examples[row] for row in sorted(rows.tolist())]


@dataclass(frozen=True, slots=True)
class FittedCalibration:
    """A calibration, and probabilities by which it can be measured on its own examples."""

    calibration: Calibration | None
    """None where the probabilities as they are have the lower log-loss on held-out halves."""
    held_out: LogProbabilities
    """Calibrated `[N, C]`: those of each half by what was fitted on the other one."""


Fit = Callable[[ValidationExamples], Calibration]


def _fitted_loss(examples: ValidationExamples, table: LogProbabilities) -> float:
    """Return the loss that a fit minimizes: as if one more example, of average confidence, were wrong.

    Where all examples are right, the log-loss alone would have probabilities of 1.
    """
    wrong = np.log(np.maximum(-np.expm1(table.max(1)), np.exp(_FLOOR))).mean()
    return float((_losses(examples, table).sum() - wrong) / len(examples))


def log_losses(log_probabilities: LogProbabilities, truth: Truth, *, several: bool) -> NDArray[np.float64]:
    """Return the log-loss of each example `[N]`, with probabilities of 1e-7 at least.

    It is the negative log-probability of the true class, or where there can be several, the sum of the binary losses of
    all classes.
    """
    right = np.where(truth, np.maximum(log_probabilities, _FLOOR), 0.0).sum(1)
    if not several:
        return np.asarray(-right)
    others = np.log(np.maximum(-np.expm1(log_probabilities), np.exp(_FLOOR)))
    return np.asarray(-right - np.where(truth, 0.0, others).sum(1))


def fit_calibration(examples: ValidationExamples) -> FittedCalibration:
    """Return the calibration of the lowest log-loss, chosen by fitting on each half and measuring on the other one.

    Of one class for each example, these are the temperature and, where it is better by more than a standard error,
    vector scaling; of several, the logistic map. The chosen one is fitted on all examples.
    """
    found = FittedCalibration(None, examples.log_probabilities)
    if len(examples) < _LEAST_EXAMPLES or examples.truth.shape[1] > MOST_CLASSES:
        return found
    fits: list[Fit] = [_logistic] if examples.several else [_temperature]
    if not examples.several and len(examples) >= _FOR_VECTORS * examples.truth.shape[1]:
        fits.append(_vectors)
    losses, chosen = _losses(examples, found.held_out), None
    for fit in fits:
        table = _held_out(examples, fit)
        gains = losses - _losses(examples, table)
        if gains.mean() > (0.0 if chosen is None else gains.std() / np.sqrt(len(gains))):
            losses, chosen, found = losses - gains, fit, FittedCalibration(None, table)
    return found if chosen is None else FittedCalibration(chosen(examples), found.held_out)


def _losses(examples: ValidationExamples, table: LogProbabilities) -> NDArray[np.float64]:
    return log_losses(table, examples.truth, several=examples.several)


def _held_out(examples: ValidationExamples, fit: Fit) -> LogProbabilities:
    """Return calibrated log-probabilities `[N, C]`, those of each half by what is fitted on the other one."""
    order = np.random.default_rng(0).permutation(len(examples))
    halves = np.array_split(order, 2)
    found = np.empty_like(examples.log_probabilities)
    for half, other in (halves, halves[::-1]):
        found[half] = fit(examples.part(other)).table(examples.log_probabilities[half])
    return found


def _temperature(examples: ValidationExamples) -> Calibration:
    from scipy.optimize import minimize_scalar  # here and below, for it takes a part of a second

    def loss(logarithm: float) -> float:
        return _fitted_loss(examples, log_softmax(examples.log_probabilities / np.exp(logarithm)))

    best = minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-4}).x
    return Calibration(method="temperature", temperature=_rounded(np.exp(best)), examples=len(examples))


def _logistic(examples: ValidationExamples) -> Calibration:
    from scipy.optimize import minimize

    def made(point: NDArray[np.float64]) -> Calibration:
        temperature, offset = _rounded(np.exp(np.clip(point[0], -3, 3))), _rounded(np.clip(point[1], -20, 20))
        return Calibration(method="logistic", temperature=temperature, offset=offset, examples=len(examples))

    def loss(point: NDArray[np.float64]) -> float:
        return _fitted_loss(examples, made(point).table(examples.log_probabilities))

    return made(minimize(loss, np.zeros(2), method="Nelder-Mead").x)


def _vectors(examples: ValidationExamples) -> Calibration:
    """Fit a factor and an offset for each class, which are kept near to the temperature."""
    from scipy.optimize import minimize

    rows = examples.log_probabilities[examples.truth] > -np.inf  # others have probability 0 whatever is fitted
    scores, truth = examples.log_probabilities[rows], examples.truth[rows]
    finite = np.where(scores > -np.inf, scores, 0.0)
    start = -np.log(_temperature(examples).temperature)
    count = truth.shape[1]

    def loss(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        factors, offsets = np.exp(point[:count]), point[count:]
        table = log_softmax(scores * factors + offsets)
        errors = (np.exp(table) - truth) / len(truth)
        away = np.concatenate([point[:count] - start, offsets])
        gradient = np.concatenate([(errors * finite * factors).sum(0), errors.sum(0)])
        prior = _PRIOR / len(truth)
        return float(-table[truth].mean() + prior * (away @ away) / 2), gradient + prior * away

    point = np.concatenate([np.full(count, start), np.zeros(count)])
    found = minimize(loss, point, jac=True, method="L-BFGS-B", bounds=[(-3, 3)] * count + [(-20, 20)] * count).x
    factors, offsets = (tuple(map(_rounded, each.tolist())) for each in (np.exp(found[:count]), found[count:]))
    return Calibration(method="vector scaling", factors=factors, offsets=offsets, examples=len(examples))


def _rounded(value: float) -> float:
    return round(float(value), 4)


def fit_sets(examples: ValidationExamples, calibration: Calibration | None) -> tuple[PredictionSets, bytes] | None:
    """Return what sets of classes are made by, and the content of the file `SCORES`; None of too few examples.

    A fifth of the examples chooses the penalty of ranks, if it is at least 100; the others are calibration examples.
    """
    if examples.several or len(examples) < _LEAST_EXAMPLES or examples.truth.shape[1] > MOST_CLASSES:
        return None
    values = examples.log_probabilities if calibration is None else calibration.table(examples.log_probabilities)
    probabilities, labels = np.exp(values), examples.truth.argmax(1)
    order = np.random.default_rng(1).permutation(len(examples))
    penalty = Penalty()
    if len(order) // _FOR_PENALTY >= _LEAST_FOR_PENALTY:
        some, order = order[::_FOR_PENALTY], np.delete(order, np.s_[::_FOR_PENALTY])
        penalty = _penalty(probabilities[some], labels[some])
    order = order[:_MOST_SCORES]
    rows = true_class_rows(probabilities[order], labels[order])
    return PredictionSets(file=SCORES, examples=len(rows), penalty=penalty), SetPredictor.written(rows)


def _penalty(probabilities: NDArray[np.float64], labels: NDArray[np.intp]) -> Penalty:
    """Return the penalty whose sets are smallest on average over three coverages; none where it gains nothing."""
    rows = true_class_rows(probabilities, labels)
    own = -np.sort(-probabilities, axis=1)
    before, ranks = np.cumsum(own, axis=1) - own, np.arange(1, own.shape[1] + 1)

    def size(penalty: Penalty) -> float:
        found = SetPredictor.of(rows, penalty, own.shape[1]).scores[False]
        places = [int(np.ceil((len(rows) + 1) * level)) - 1 for level in _LEVELS]
        limits = [found[place] for place in places if place < len(rows)]
        return float(np.mean([((before + penalty.of(ranks) <= limit) & (own > 0)).sum() for limit in limits]))

    return min((Penalty(), *_PENALTIES), key=size)
