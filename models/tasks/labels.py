"""The classes of a classifier: their section in the manifest, their names, and how they are ranked.

Shapes: `B` texts or images, `k` classes asked for. All log-probabilities are base e.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, Self

import numpy as np
from pydantic import Field

from models.backend import Array
from models.bundle.contract import Contract, FileName, TaskConfig
from models.errors import BundleError
from models.operations.operation import Output

__all__ = [
    "CLASSES_OUTPUTS",
    "Classes",
    "ClassesConfig",
    "Label",
    "OutOfScope",
    "Ranking",
    "classes_cells",
    "read_label_file",
    "read_labels",
]


class OutOfScope(Contract):
    """When an input is out of scope, that is of no class, chosen on the validation split."""

    threshold: Annotated[float, Field(ge=0, le=1)]
    """Least probability of the best class of an input that is in scope."""
    detected: Annotated[float, Field(ge=0, le=1)]
    """Fraction of the inputs out of scope that were below the threshold."""
    rejected: Annotated[float, Field(ge=0, le=1)]
    """Fraction of the inputs in scope that were below the threshold."""


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


class ClassesConfig(TaskConfig):
    """The section of a classifier, as far as it is the same for texts and images."""

    required_graphs = frozenset({"classify"})
    classes: Classes

    def files(self) -> frozenset[str]:
        return super().files() | {self.classes.file}

    def summary(self) -> Mapping[str, object]:
        classes = self.classes
        return {
            **super().summary(),
            "classes": self._listed,
            "threshold": classes.threshold,
            "out_of_scope": None if classes.out_of_scope is None else classes.out_of_scope.model_dump(),
        }

    def description(self) -> Mapping[str, str]:
        found, rule = str(self._listed), self.classes.out_of_scope
        if rule is not None:
            found += f", out of scope where the best has a probability below {rule.threshold:g}"
        return {**super().description(), "classes": found}

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


@dataclass(frozen=True, slots=True)
class Ranking:
    """The classes of a classifier as results have them."""

    labels: tuple[str, ...]
    """The classes that are listed."""
    unlisted: bool
    """Whether another class follows them, which is never listed."""
    rule: OutOfScope | None

    @classmethod
    def of(cls, labels: Sequence[str], config: ClassesConfig) -> Self:
        """Return the ranking of a classifier with these listed labels."""
        return cls(tuple(labels), config.classes.unlisted is not None, config.classes.out_of_scope)

    def requested(self, top_k: int) -> Array:
        """Return how many classes to request of the graph for so many listed ones."""
        return np.array(top_k + self.unlisted)

    def best(self, log_probabilities: Array, classes: Array, counts: Sequence[int]) -> list[tuple[Label, ...]]:
        """Return the first `counts` `[B]` listed classes of each row of `[B, k]`, those of probability 0 left out."""
        return [
            tuple(
                Label(self.labels[number], value)
                for number, value in zip(numbers, values, strict=True)
                if value != -math.inf and number < len(self.labels)
            )[:count]
            for numbers, values, count in zip(classes.tolist(), log_probabilities.tolist(), counts, strict=True)
        ]

    def probabilities(self, log_probabilities: Array, classes: Array) -> Array:
        """Return the probability of each listed class `[C]` from those of the best ones `[k]`; others have 0."""
        found = np.zeros(len(self.labels) + self.unlisted, np.float32)
        kept = log_probabilities > -math.inf
        found[classes[kept]] = np.exp(log_probabilities[kept])
        return found[: len(self.labels)]

    def ranked(self, probabilities: Array, top_k: int) -> tuple[Label, ...]:
        """Return the `top_k` most probable listed classes of `[C]`, those of probability 0 left out."""
        order = np.argsort(-probabilities, kind="stable")[:top_k].tolist()
        return tuple(
            Label(self.labels[number], math.log(probabilities[number])) for number in order if probabilities[number] > 0
        )

    def out_of_scope(self, best: Sequence[Label]) -> bool | None:
        """Return whether an input with these best classes is out of scope; None for a model that cannot tell."""
        if self.rule is None:
            return None
        return not best or best[0].probability < self.rule.threshold
