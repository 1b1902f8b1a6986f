"""The classes of a classifier: their section in the manifest, their names, and how they are ranked.

Shapes: `B` texts or images, `k` classes asked for. All log-probabilities are base e.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Protocol, Self, TypedDict

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from models.backend import Array
from models.bundle.contract import Contract, FileName, TaskConfig
from models.errors import BundleError, QueryError
from models.operations.classification import CalibrationChoice
from models.operations.operation import Output
from models.tasks.class_calibration import Calibration
from models.tasks.model import checked_top_k
from models.tasks.prediction_sets import Coverage, PredictionSets, SetPredictor
from models.tasks.scope import OutOfScope

__all__ = [
    "CLASSES_OUTPUTS",
    "Choice",
    "ChoiceOptions",
    "Classes",
    "ClassesConfig",
    "Label",
    "Ranked",
    "Ranking",
    "Scoped",
    "classes_cells",
    "read_label_file",
    "read_labels",
    "read_sets",
]


class Classes(Contract):
    """The classes of a classifier."""

    file: FileName
    """A label a line, in the order of the classes' numbers."""
    count: Annotated[int, Field(ge=2)]
    """Number of lines."""
    threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    """For multi-label classifiers: the least probability of a predicted class; the best class is always predicted."""
    unlisted: str | None = None
    """The class of inputs of no class, the last one, which is never part of a result."""
    out_of_scope: OutOfScope | None = None
    independent: bool = False
    """Whether the probabilities are sigmoids of the scores, each by itself, instead of one softmax."""
    calibration: Calibration | None = None
    """How probabilities are calibrated; other thresholds are of calibrated ones. None where none was fitted, and where
    it would be no better."""
    prediction_sets: PredictionSets | None = None
    """What sets of classes with a chosen coverage are made by; none of models whose inputs may have several classes."""

    @model_validator(mode="after")
    def _a_factor_for_each(self) -> Self:
        if self.calibration is not None and len(self.calibration.factors) not in (0, self.count):
            raise ValueError(f"calibration has {len(self.calibration.factors)} factors for {self.count} classes")
        return self


class ClassesConfig(TaskConfig):
    """The section of a classifier, as far as it is the same for texts and images."""

    required_graphs = frozenset({"classify"})
    classes: Classes

    def files(self) -> frozenset[str]:
        sets = self.classes.prediction_sets
        return super().files() | {self.classes.file} | (set() if sets is None else {sets.file})

    def summary(self) -> Mapping[str, object]:
        classes = self.classes
        return {
            **super().summary(),
            "classes": self._listed,
            "threshold": classes.threshold,
            "out_of_scope": None
            if classes.out_of_scope is None
            else classes.out_of_scope.model_dump(exclude={"trade_off"}),
            "calibration": None if classes.calibration is None else classes.calibration.summary(),
            "calibration_examples": None if classes.prediction_sets is None else classes.prediction_sets.examples,
        }

    def description(self) -> Mapping[str, str]:
        found, rule = str(self._listed), self.classes.out_of_scope
        if rule is not None:
            found += f", out of scope where the best has {rule.described()}"
        lines = {**super().description(), "classes": found}
        if self.classes.calibration is not None:
            lines["calibration"] = self.classes.calibration.described()
        if self.classes.prediction_sets is not None:
            lines["prediction sets"] = self.classes.prediction_sets.described()
        return lines

    @property
    def _listed(self) -> int:
        return self.classes.count - (self.classes.unlisted is not None)


@dataclass(frozen=True, slots=True)
class Label:
    """A class and its probability."""

    label: str
    """Name of the class."""
    log_probability: float
    """Natural logarithm of its probability."""

    @property
    def probability(self) -> float:
        """Return the probability of the class."""
        return math.exp(self.log_probability)


class Classified(Protocol):
    """The classes of an input, most probable first."""

    @property
    def labels(self) -> Sequence[Label]: ...

    @property
    def out_of_scope(self) -> bool | None: ...


class ClassifierLike(Protocol):
    """A model of any input."""

    @property
    def labels(self) -> Sequence[str]: ...

    @property
    def tells_out_of_scope(self) -> bool: ...


CLASSES_OUTPUTS: tuple[Output[ClassifierLike, Classified], ...] = (
    Output(name="label", kind="text", several=True, values=lambda _, found: [each.label for each in found.labels]),
    Output(
        name="probability",
        kind="number",
        several=True,
        values=lambda _, found: [each.probability for each in found.labels],
    ),
    Output(
        name="out_of_scope",
        kind="flag",
        values=lambda _, found: bool(found.out_of_scope),
        told_by=lambda model: model.tells_out_of_scope,
    ),
)
"""The outputs of classifiers."""


def classes_cells(found: Classified) -> tuple[object, ...]:
    """Return the cells of a table: the best class, its probability, and whether the input is out of scope."""
    best = found.labels[0] if found.labels else None
    outside = "out of scope" if found.out_of_scope else ""
    return ("", "", outside) if best is None else (best.label, best.probability, outside)


def read_label_file(bundle: Path, file: str, count: int) -> list[str]:
    """Return the lines of a file of labels; raises `BundleError` where they are not `count` different ones."""
    try:
        labels = (bundle / file).read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except ValueError as error:
        raise BundleError(str(bundle), [f"{file} is not UTF-8: {error}"]) from error
    if len(labels) != count or len(set(labels)) != count:
        raise BundleError(str(bundle), [f"{file} does not have {count} different labels"])
    return labels


def read_labels(bundle: Path, config: ClassesConfig) -> list[str]:
    """Return the labels of a classifier; raises `BundleError` where they are not those that the manifest describes."""
    file, count = config.classes.file, config.classes.count
    labels = read_label_file(bundle, file, count)
    unlisted = config.classes.unlisted
    if unlisted is None:
        return labels
    if labels[-1] != unlisted or count < 3:
        raise BundleError(str(bundle), [f"{file} does not end with {unlisted!r} after two labels or more"])
    return labels[:-1]


def read_sets(bundle: Path, config: ClassesConfig) -> SetPredictor | None:
    """Return what prediction sets of a bundle are made by, None where it has none; raises `BundleError`."""
    section = config.classes.prediction_sets
    return None if section is None else SetPredictor.read(bundle, section, config.classes.count)


class ChoiceOptions(TypedDict, total=False):
    """Options of a classification in addition to the number of classes."""

    calibration: CalibrationChoice
    """`none` for the probabilities of the output layer, `fitted` for calibrated ones where the model has a
    calibration."""
    coverage: float | None
    """Return a prediction set with this coverage in place of the most probable classes."""
    randomized: bool
    """Whether sets have exactly the coverage on average; they may be empty then."""
    class_conditional: bool
    """Whether classes with enough calibration examples have the coverage each."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which classes of an input are returned, and which probabilities of them."""

    top_k: int
    """The largest number of classes."""
    calibrated: bool = True
    """Whether probabilities are calibrated, of a model that has a calibration."""
    coverage: Coverage | None = None
    """The rule by which the classes are a prediction set; None for the most probable ones."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The classes of an input as results have them."""

    labels: tuple[Label, ...]
    """Most probable first."""
    out_of_scope: bool | None
    """Whether the input is likely to be of no class; None for a model that cannot tell."""
    calibration_examples: int | None = None
    """Calibration examples of a prediction set."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The classes of a classifier as results have them."""

    labels: tuple[str, ...]
    """The classes that are listed."""
    unlisted: bool
    """Whether another class follows them, which is never listed."""
    rule: OutOfScope | None
    calibration: Calibration | None = None
    sets: SetPredictor | None = None

    @classmethod
    def of(cls, labels: Sequence[str], config: ClassesConfig, sets: SetPredictor | None = None) -> Self:
        """Return the ranking of a classifier with these listed labels."""
        classes = config.classes
        return cls(tuple(labels), classes.unlisted is not None, classes.out_of_scope, classes.calibration, sets)

    @property
    def count(self) -> int:
        """Number of all classes, the unlisted one included."""
        return len(self.labels) + self.unlisted

    def choice(
        self,
        top_k: int = 5,
        *,
        calibration: CalibrationChoice = "fitted",
        coverage: float | None = None,
        randomized: bool = False,
        class_conditional: bool = False,
    ) -> Choice:
        """Return the choice of classes for each input; raises `QueryError` where the model cannot return it."""
        top_k = checked_top_k(top_k, len(self.labels))
        if calibration not in ("fitted", "none"):
            raise QueryError(f"calibration must be 'fitted' or 'none', not {calibration!r}")
        if coverage is None:
            if randomized or class_conditional:
                raise QueryError("randomized and class_conditional need a coverage")
            return Choice(top_k, calibration == "fitted")
        if not 0 < coverage < 1:
            raise QueryError(f"coverage must be between 0 and 1, not {coverage:g}")
        if self.sets is None:
            raise QueryError("this model has no calibration examples, so that no coverage can be chosen")
        if calibration == "none":
            raise QueryError("give either coverage or calibration: none; sets are made by calibrated probabilities")
        chosen = self.sets.coverage(coverage, randomized=randomized, class_conditional=class_conditional)
        return Choice(len(self.labels), coverage=chosen)

    @property
    def needs_normalizers(self) -> bool:
        """Whether the rule for inputs out of scope needs the output `normalizers` of the graph."""
        return self.rule is not None and self.rule.score == "logit"

    def requested(self, choices: Sequence[Choice]) -> Array:
        """Return how many classes to request of the graph for a batch of these choices."""
        if self.calibration is not None and self.calibration.needs_all_classes:
            return np.array(self.count)
        if any(choice.coverage is not None for choice in choices):
            return np.array(self.count)
        return np.array(max(choice.top_k for choice in choices) + self.unlisted)

    def best(
        self,
        log_probabilities: Array,
        classes: Array,
        choices: Sequence[Choice],
        content: Callable[[int], bytes] = lambda row: b"",
        normalizers: Array | None = None,
    ) -> list[Ranked]:
        """Return the chosen classes of each row of `[B, k]`, those of probability 0 left out.

        `content` returns the bytes that identify the input of a row, which randomized sets are drawn by. `normalizers`
        `[B]` are scores less log-probabilities, where `needs_normalizers`.
        """
        if not choices:
            return []
        fitted = (log_probabilities, classes)
        if self.calibration is not None:
            fitted = self.calibration.apply(log_probabilities, classes)
        most = max(choice.top_k for choice in choices) + self.unlisted
        tables = {
            calibrated: (values[:, :most].tolist(), numbers[:, :most].tolist())
            for calibrated, (values, numbers) in {True: fitted, False: (log_probabilities, classes)}.items()
            if calibrated or not all(choice.calibrated for choice in choices)
        }
        scores = None if normalizers is None else self.scores(log_probabilities, classes, normalizers)
        found = []
        for row, choice in enumerate(choices):
            values, numbers = (table[row] for table in tables[choice.calibrated])
            if choice.coverage is not None:
                assert self.sets is not None
                members = self.sets.members(fitted[0][row], fitted[1][row], choice.coverage, content(row))
                values, numbers = fitted[0][row][members].tolist(), fitted[1][row][members].tolist()
            labels = best = self._labels(values, numbers, choice.top_k)
            if not choice.calibrated or choice.coverage is not None:
                best_values, best_numbers = (table[row] for table in tables[True])
                best = self._labels(best_values, best_numbers, 1)
            score = None if scores is None else float(scores[row])
            examples = None if choice.coverage is None or self.sets is None else self.sets.examples
            found.append(Ranked(labels, self.out_of_scope(best, score), examples))
        return found

    def _labels(self, values: Sequence[float], numbers: Sequence[int], count: int) -> tuple[Label, ...]:
        """Return the first `count` listed classes, those of probability 0 left out."""
        listed = len(self.labels)
        return tuple(
            Label(self.labels[number], value)
            for number, value in zip(numbers[: count + 1], values[: count + 1], strict=True)
            if value != -math.inf and number < listed
        )[:count]

    def probabilities(self, log_probabilities: Array, classes: Array, *, calibrated: bool = True) -> Array:
        """Return the probability of each listed class `[C]` from those of the best ones `[k]`; others have 0."""
        if calibrated and self.calibration is not None:
            values, numbers = self.calibration.apply(log_probabilities[None], classes[None])
            log_probabilities, classes = values[0], numbers[0]
        return np.exp(self.in_order(log_probabilities[None], classes[None])[0, : len(self.labels)])

    def scores(self, log_probabilities: Array, classes: Array, normalizers: Array) -> Array:
        """Return the score before the softmax of the best listed class, from `[B, k]` and `[B]` -> `[B]`."""
        listed: Array = np.where(classes < len(self.labels), log_probabilities, -np.inf).max(1) + normalizers
        return listed

    def in_order(self, log_probabilities: Array, classes: Array) -> NDArray[np.float64]:
        """Return the log-probabilities of all classes in the order of their numbers, of those of the best `[B, k]`."""
        found = np.full((len(classes), self.count), -np.inf)
        np.put_along_axis(found, classes, log_probabilities.astype(np.float64), 1)
        return found

    def of_probabilities(self, probabilities: Array, top_k: int, score: float | None = None) -> Ranked:
        """Return the `top_k` most probable listed classes of `[C]`, those of probability 0 left out.

        `score` is that of the best class, where `needs_normalizers`.
        """
        order = np.argsort(-probabilities, kind="stable")[:top_k].tolist()
        labels = tuple(
            Label(self.labels[number], math.log(probabilities[number])) for number in order if probabilities[number] > 0
        )
        return Ranked(labels, self.out_of_scope(labels, score))

    def out_of_scope(self, best: Sequence[Label], score: float | None = None) -> bool | None:
        """Return whether an input with these best classes is out of scope; None for a model that cannot tell.

        `score` is that of the best class before the softmax, where `needs_normalizers`.
        """
        if self.rule is None:
            return None
        if not best:
            return True
        if self.rule.score == "probability":
            return best[0].probability < self.rule.threshold
        assert score is not None
        return score < self.rule.threshold


class Scoped:
    """A classifier whose rule for inputs out of scope can be changed while it serves."""

    _ranking: Ranking

    @property
    def scope(self) -> OutOfScope | None:
        """The rule for inputs of no class; None where there is none."""
        return self._ranking.rule

    @scope.setter
    def scope(self, rule: OutOfScope) -> None:
        self._ranking = replace(self._ranking, rule=rule)

    @property
    def tells_out_of_scope(self) -> bool:
        """Whether there is a rule for inputs of no class."""
        return self._ranking.rule is not None
