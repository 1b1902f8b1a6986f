"""The calibration of a classifier in its bundle: fields of the manifest, files, metrics, and a part of the model card.

Shapes: `N`, `M` examples, `C` all classes, the unlisted one included. All log-probabilities are base e.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from models.bundle.manifest import BundleManifest
from models.errors import QueryError
from models.tasks.class_calibration import Calibration
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
    calibration_error,
    measure_several,
    scope_threshold,
    scope_trade_off,
)
from training.tasks.reliability import Reliability, reliability_diagram

__all__ = [
    "DIAGRAM",
    "BundleProbabilities",
    "CalibratedClasses",
    "ScopeRates",
    "calibration_metrics",
    "calibration_section",
    "quality_columns",
]

DIAGRAM = "reliability.svg"
"""File of a bundle."""
_ERROR, _BRIER, _LOSS = "expected calibration error", "Brier score", "log-loss"
_BEFORE = ", uncalibrated"

LogProbabilities = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScopeRates:
    """The rate of errors that the rule for inputs of no class is chosen by: one at most."""

    reject: float | None = None
    """Fraction of the inputs of a class that may be refused."""
    passed: float | None = None
    """Fraction of the inputs of no class that may pass."""


def calibration_metrics(examples: ValidationExamples, table: LogProbabilities, listed: int) -> dict[str, float]:
    """Return calibration error, Brier score and log-loss of log-probabilities `[N, C]` of examples.

    The error is that of the most probable listed class, in 15 bins of equal width. The Brier score is the sum of the
    squared errors of the probabilities of all classes, from 0 to 2 where each example has one class.
    """
    probabilities = np.exp(table)
    found = _most_probable(examples, probabilities, listed)
    return {
        _ERROR: calibration_error(found.confidences, found.right),
        _BRIER: float(((probabilities - examples.truth) ** 2).sum(1).mean()),
        _LOSS: float(log_losses(table, examples.truth, several=examples.several).mean()),
    }


def _most_probable(examples: ValidationExamples, probabilities: NDArray[np.float64], listed: int) -> Reliability:
    best = probabilities[:, :listed].argmax(1)
    rows = np.arange(len(examples))
    return Reliability(probabilities[rows, best], examples.truth[rows, best])


@dataclass(frozen=True, slots=True)
class BundleProbabilities:
    """The log-probabilities `[N, C]` of a bundle on a split, as its output layer gives them."""

    classes: Classes
    table: LogProbabilities
    count: int
    """Number of listed classes, which are the first ones."""

    @property
    def listed(self) -> NDArray[np.float64]:
        """The probabilities of the listed classes as the bundle gives them."""
        return np.exp(self.calibrated(self.table))[:, : self.count]

    def calibrated(self, table: LogProbabilities) -> LogProbabilities:
        """Return log-probabilities as the bundle gives them."""
        calibration = self.classes.calibration
        return table if calibration is None else calibration.table(table)

    def metrics(self, labels: Sequence[Sequence[int]]) -> dict[str, float]:
        """Return the metrics of calibration, with and without it, on the examples whose classes are listed.

        The calibration error with it is left out: it is a metric of every classifier.
        """
        known = [row for row, classes in enumerate(labels) if max(classes) < self.count]
        several = self.classes.threshold is not None
        given = [labels[row] for row in known]
        examples = ValidationExamples.of(self.table[known], given, several=several)
        after = calibration_metrics(examples, self.calibrated(examples.log_probabilities), self.count)
        found = {_BRIER: after[_BRIER], _LOSS: after[_LOSS]}
        if self.classes.calibration is None:
            return found
        before = calibration_metrics(examples, examples.log_probabilities, self.count)
        return found | {f"{name}{_BEFORE}": value for name, value in before.items()}


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
        self, classes: Classes, outside: LogProbabilities | None = None, rates: ScopeRates | None = None
    ) -> dict[str, object]:
        """Return the section of the classes with what was fitted, and with thresholds of calibrated probabilities.

        `outside` `[M, C]` are log-probabilities of examples of no class; `rates` is what the rule for inputs of no
        class is chosen by. Raises `ValueError` for a rate that no threshold has.
        """
        calibration = self.fitted.calibration
        inside = self._listed(calibration, self.examples.log_probabilities)
        found = classes.model_dump()
        found["calibration"] = None if calibration is None else calibration.model_dump()
        found["prediction_sets"] = None if self.sets is None else self.sets.model_dump()
        if self.examples.several and calibration is not None:
            labels = [tuple(np.flatnonzero(row).tolist()) for row in self.examples.truth]
            found["threshold"] = measure_several(inside, labels).threshold
        if outside is not None or rates is not None:
            none = None if outside is None else self._listed(calibration, outside)
            found["out_of_scope"] = _scope_rule(inside, none, rates or ScopeRates()).model_dump()
        return found

    def _listed(self, calibration: Calibration | None, table: LogProbabilities) -> NDArray[np.float64]:
        return np.exp(table if calibration is None else calibration.table(table))[:, : self.listed]


def _scope_rule(inside: NDArray[np.float64], outside: NDArray[np.float64] | None, rates: ScopeRates) -> OutOfScope:
    """Return the rule for inputs of no class by probabilities `[N, C]` of a class, and `[M, C]` of none."""
    points = tuple(scope_trade_off(inside, outside))
    rule = OutOfScope(threshold=0.0, rejected=0.0, trade_off=points)
    try:
        if rates.reject is not None:
            return rule.with_reject_rate(rates.reject)
        if rates.passed is not None:
            return rule.with_pass_rate(rates.passed)
    except QueryError as error:
        raise ValueError(str(error)) from error
    assert outside is not None
    return OutOfScope(**asdict(scope_threshold(inside, outside)), trade_off=points)


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
