"""The calibration of a classifier in its bundle: fields of the manifest, files, metrics, and a part of the model card.

Shapes: `N`, `M` examples, `C` all classes, the unlisted one included. All log-probabilities are base e.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.bundle.manifest import BundleManifest
from models.errors import QueryError
from models.tasks.labels import Classes, ClassesConfig
from models.tasks.prediction_sets import PredictionSets
from models.tasks.scope import OutOfScope
from training.tasks.class_calibration import (
    SCORES,
    FittedCalibration,
    ValidationExamples,
    fit_calibration,
    fit_sets,
    log_losses,
)
from training.tasks.classification_quality import (
    ScopeScores,
    calibration_error,
    measure_several,
    scope_threshold,
    scope_trade_off,
)
from training.tasks.ranked_classes import LEAST_THRESHOLD, RankedClasses
from training.tasks.reliability import Reliability, reliability_diagram

__all__ = [
    "DIAGRAM",
    "BundlePredictions",
    "CalibratedClasses",
    "ScopeRates",
    "bundle_classes",
    "calibration_metrics",
    "calibration_section",
    "quality_columns",
]

DIAGRAM = "reliability.svg"
"""File of a bundle."""
_ERROR, _BRIER, _LOSS = "expected calibration error", "Brier score", "log-loss"
_BEFORE = ", uncalibrated"

_BLOCK_NUMBERS = 1 << 20
"""Log-probabilities that are computed and measured at once."""

LogProbabilities = NDArray[np.float64]
InputT = TypeVar("InputT")


@dataclass(frozen=True, slots=True)
class ScopeRates:
    """The rate of errors that the rule for inputs of no class is chosen by: one at most."""

    reject: float | None = None
    """Fraction of the inputs of a class that may be refused."""
    passed: float | None = None
    """Fraction of the inputs of no class that may pass."""


@dataclass(frozen=True, slots=True)
class _Errors:
    """The errors of the probabilities of examples, by which a calibration is judged."""

    reliability: Reliability
    brier: NDArray[np.float64]
    """Sum of the squared errors of the probabilities of all classes, `[N]`."""
    losses: NDArray[np.float64]
    """Log-losses, `[N]`."""

    @classmethod
    def of(cls, examples: ValidationExamples, table: LogProbabilities, listed: int) -> Self:
        """Return those of log-probabilities `[N, C]`; the most probable class is one of those listed."""
        probabilities = np.exp(table)
        return cls(
            _most_probable(examples, probabilities, listed),
            ((probabilities - examples.truth) ** 2).sum(1),
            log_losses(table, examples.truth, several=examples.several),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return those of the examples of several parts."""
        confidences, right, brier, losses = (
            np.concatenate(each)
            for each in zip(
                *((one.reliability.confidences, one.reliability.right, one.brier, one.losses) for one in parts),
                strict=True,
            )
        )
        return cls(Reliability(confidences, right), brier, losses)

    def metrics(self) -> dict[str, float]:
        return {
            _ERROR: calibration_error(self.reliability.confidences, self.reliability.right),
            _BRIER: float(self.brier.mean()),
            _LOSS: float(self.losses.mean()),
        }


def calibration_metrics(examples: ValidationExamples, table: LogProbabilities, listed: int) -> dict[str, float]:
    """Return calibration error, Brier score and log-loss of log-probabilities `[N, C]` of examples.

    The error is that of the most probable listed class, in 15 bins of equal width. The Brier score is the sum of the
    squared errors of the probabilities of all classes, from 0 to 2 where each example has one class.
    """
    return _Errors.of(examples, table, listed).metrics()


def _most_probable(examples: ValidationExamples, probabilities: NDArray[np.float64], listed: int) -> Reliability:
    best = probabilities[:, :listed].argmax(1)
    rows = np.arange(len(examples))
    return Reliability(probabilities[rows, best], examples.truth[rows, best])


@dataclass(frozen=True, slots=True)
class BundlePredictions:
    """The predictions of a bundle for a split, and the errors of their probabilities.

    Probabilities of all classes are computed in blocks of examples and not kept.
    """

    ranked: RankedClasses
    """The listed classes as the bundle gives them."""
    before: _Errors
    """Of the probabilities as the output layer gives them, of the examples whose classes are listed."""
    after: _Errors
    """The same of the probabilities as the bundle gives them."""
    calibrated: bool

    @classmethod
    def of(
        cls,
        model: Any,
        inputs: Sequence[InputT],
        labels: Sequence[Sequence[int]],
        log_probabilities: Callable[[Sequence[InputT]], NDArray[Any]],
    ) -> Self:
        """Compute a split with a loaded bundle; `log_probabilities` are those of its output layer for some inputs."""
        classes: Classes = model.config.classes
        several, count = classes.threshold is not None, len(model.labels)
        ranked, before, after = [], [], []
        for rows, table in _blocks(model, inputs, log_probabilities):
            given = [labels[row] for row in rows]
            final = _calibrated(classes, table)
            ranked.append(_ranked(classes, final, count))
            known = [place for place, own in enumerate(given) if max(own) < count]
            examples = ValidationExamples.of(table[known], [given[place] for place in known], several=several)
            before.append(_Errors.of(examples, examples.log_probabilities, count))
            after.append(_Errors.of(examples, final[known], count))
        errors = _Errors.joined(before), _Errors.joined(after)
        return cls(RankedClasses.joined(ranked), *errors, classes.calibration is not None)

    def metrics(self) -> dict[str, float]:
        """Return the metrics of calibration, with and without it, on the examples whose classes are listed.

        The calibration error with it is left out: it is a metric of every classifier.
        """
        found = {name: value for name, value in self.after.metrics().items() if name != _ERROR}
        if not self.calibrated:
            return found
        return found | {f"{name}{_BEFORE}": value for name, value in self.before.metrics().items()}


def bundle_classes(
    model: Any, inputs: Sequence[InputT], log_probabilities: Callable[[Sequence[InputT]], NDArray[Any]]
) -> RankedClasses | None:
    """Return the most probable listed classes of inputs as a loaded bundle gives them; None of no inputs."""
    classes: Classes = model.config.classes
    parts = [
        _ranked(classes, _calibrated(classes, table), len(model.labels))
        for _, table in _blocks(model, inputs, log_probabilities)
    ]
    return RankedClasses.joined(parts) if parts else None


def _blocks(
    model: Any, inputs: Sequence[InputT], log_probabilities: Callable[[Sequence[InputT]], NDArray[Any]]
) -> Iterator[tuple[range, LogProbabilities]]:
    """Return the places of inputs and their log-probabilities `[B, C]`, as many at a time as memory is bounded for."""
    size = max(1, _BLOCK_NUMBERS // len(model.labels))
    for start in range(0, len(inputs), size):
        rows = range(start, min(start + size, len(inputs)))
        yield rows, log_probabilities(inputs[start : rows.stop]).astype(np.float64)


def _calibrated(classes: Classes, table: LogProbabilities) -> LogProbabilities:
    return table if classes.calibration is None else classes.calibration.table(table)


def _ranked(classes: Classes, table: LogProbabilities, count: int) -> RankedClasses:
    return RankedClasses.of(np.exp(table[:, :count]), min(LEAST_THRESHOLD, classes.threshold or 1.0))


@dataclass(frozen=True, slots=True)
class CalibratedClasses:
    """What is fitted on validation examples."""

    examples: ValidationExamples
    listed: int
    """Number of listed classes, which are the first ones."""
    fitted: FittedCalibration
    sets: PredictionSets | None
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the bundle, by name."""

    @classmethod
    def of(cls, examples: ValidationExamples, listed: int) -> Self:
        """Fit calibration and prediction sets, and draw a reliability diagram of the former."""
        fitted = fit_calibration(examples)
        sets = fit_sets(examples, fitted.calibration)
        files = {} if sets is None else {SCORES: sets[1]}
        if fitted.calibration is not None:
            tables = (examples.log_probabilities, fitted.held_out)
            before, after = (_most_probable(examples, np.exp(table), listed) for table in tables)
            files[DIAGRAM] = reliability_diagram(before, after)
        return cls(examples, listed, fitted, None if sets is None else sets[0], files)

    def held_out_metrics(self) -> dict[str, float]:
        """Return the metrics of calibration on the examples, each half calibrated by what was fitted on the other."""
        after = calibration_metrics(self.examples, self.fitted.held_out, self.listed)
        before = calibration_metrics(self.examples, self.examples.log_probabilities, self.listed)
        return after | {f"{name}{_BEFORE}": value for name, value in before.items()}

    def held_out_quality(self, dataset: str) -> list[dict[str, object]]:
        """Return these metrics as a manifest lists them, of a data set of this name."""
        name = f"{len(self.examples)} texts of {dataset}"
        return [
            {"metric": metric, "value": round(value, 4), "dataset": name, "split": "held out"}
            for metric, value in self.held_out_metrics().items()
        ]

    def section(
        self,
        classes: Classes,
        outside: LogProbabilities | None = None,
        rates: ScopeRates | None = None,
        scores: ScopeScores | None = None,
    ) -> dict[str, object]:
        """Return the section of the classes with what was fitted, and with thresholds of calibrated probabilities.

        `outside` `[M, C]` are log-probabilities of examples of no class; `rates` is what the rule for inputs of no
        class is chosen by. It is one of `scores` before the softmax where those tell the examples apart better than
        probabilities. Raises `ValueError` for a rate that no threshold has.
        """
        calibration = self.fitted.calibration
        found = classes.model_dump()
        found["calibration"] = None if calibration is None else calibration.model_dump()
        found["prediction_sets"] = None if self.sets is None else self.sets.model_dump()
        if self.examples.several and calibration is not None:
            labels = [tuple(np.flatnonzero(row).tolist()) for row in self.examples.truth]
            ranked = RankedClasses.of(self._listed(self.examples.log_probabilities))
            found["threshold"] = measure_several(ranked, labels).threshold
        if outside is not None or rates is not None:
            inside = self._listed(self.examples.log_probabilities).max(1)
            none = None if outside is None else self._listed(outside).max(1)
            found["out_of_scope"] = _scope_rule(inside, none, rates or ScopeRates(), scores).model_dump()
        return found

    def _listed(self, table: LogProbabilities) -> NDArray[np.float64]:
        calibration = self.fitted.calibration
        return np.exp(table if calibration is None else calibration.table(table))[:, : self.listed]


def _scope_rule(
    inside: NDArray[np.float64], outside: NDArray[np.float64] | None, rates: ScopeRates, scores: ScopeScores | None
) -> OutOfScope:
    """Return the rule for inputs of no class by the largest probabilities: `[N]` of those of a class, `[M]` of none.

    It is one of `scores` where those tell the examples apart better.
    """
    by: Literal["probability", "logit"] = "probability"
    if outside is not None and scores is not None and scores.auroc > ScopeScores(inside, outside).auroc:
        inside, outside, by = scores.inside, scores.outside, "logit"
    points = tuple(scope_trade_off(inside, outside))
    rule = OutOfScope(score=by, threshold=0.0, rejected=0.0, trade_off=points)
    try:
        if rates.reject is not None:
            return rule.with_reject_rate(rates.reject)
        if rates.passed is not None:
            return rule.with_pass_rate(rates.passed)
    except QueryError as error:
        raise ValueError(str(error)) from error
    assert outside is not None
    return OutOfScope(**asdict(scope_threshold(inside, outside)), score=by, trade_off=points)


def quality_columns(manifest: BundleManifest[ClassesConfig]) -> Mapping[str, str]:
    """Return the headings of the metrics of a bundle that `calibration_section` does not show."""
    names = dict.fromkeys(each.metric for each in manifest.quality)
    shown = {name for name in names if name.endswith(_BEFORE) or (name in (_BRIER, _LOSS) and name + _BEFORE in names)}
    return {name: name for name in names if name not in shown}


def calibration_section(manifest: BundleManifest[ClassesConfig]) -> str:
    """Return the part of a model card about calibrated probabilities, Markdown; empty where none are."""
    classes = manifest.config.classes
    lines = []
    if classes.calibration is not None:
        lines += [
            f"Probabilities are calibrated: {classes.calibration.described()}. `calibration: none` in a request is for "
            "those of the output layer.",
            "",
            *_rows(manifest),
            "",
            "Expected calibration error: of the most probable class, in 15 bins of equal width. Brier score: sum of "
            "squared errors over all classes. Log-loss: natural logarithm, with probabilities of 1e-7 at least.",
            "",
            f"![reliability diagram, validation split, each half calibrated by the other one]({DIAGRAM})",
            "",
        ]
    if classes.prediction_sets is not None:
        lines.append(f"Prediction sets: {classes.prediction_sets.described()}.")
    return "\n".join(lines).strip()


def _rows(manifest: BundleManifest[ClassesConfig]) -> list[str]:
    found: dict[tuple[str, str], dict[str, float]] = {}
    for each in manifest.quality:
        found.setdefault((each.dataset, each.split), {})[each.metric] = each.value
    rows = ["| data | split | metric | output layer | calibrated |", "| --- | --- | --- | --- | --- |"]
    for (dataset, split), values in found.items():
        rows += [
            f"| {dataset} | {split} | {name} | {values[name + _BEFORE]:.4f} | {values[name]:.4f} |"
            for name in (_ERROR, _BRIER, _LOSS)
            if name + _BEFORE in values
        ]
    return rows
