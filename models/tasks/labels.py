"""The classes of a classifier: their section in the manifest, their names, and how they are ranked.

Shapes: `B` texts or images, `k` classes asked for. All log-probabilities are base e.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from models.backend import Array
from models.bundle.contract import Contract, FileName, TaskConfig
from models.errors import BundleError, QueryError

__all__ = ["ClassesConfig", "Label", "best_labels", "checked_top_k", "read_labels"]


class Classes(Contract):
    """The classes of a classifier."""

    file: FileName
    """A label a line, in the order of the classes' numbers."""
    count: Annotated[int, Field(ge=2)]
    threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    """For multi-label classifiers: the least probability of a predicted class; the best class is always predicted."""


class ClassesConfig(TaskConfig):
    """The section of a classifier, as far as it is the same for texts and images."""

    required_graphs = frozenset({"classify"})
    classes: Classes

    def files(self) -> frozenset[str]:
        return super().files() | {self.classes.file}

    def summary(self) -> Mapping[str, object]:
        return {**super().summary(), "classes": self.classes.count, "threshold": self.classes.threshold}

    def description(self) -> Mapping[str, str]:
        return {**super().description(), "classes": str(self.classes.count)}


@dataclass(frozen=True, slots=True)
class Label:
    """A class and its probability."""

    label: str
    log_probability: float

    @property
    def probability(self) -> float:
        return math.exp(self.log_probability)


def checked_top_k(top_k: int, labels: Sequence[str]) -> int:
    """Return how many classes a result has; raises `QueryError` for `top_k` below 1."""
    if top_k < 1:
        raise QueryError(f"top_k must be at least 1, not {top_k}")
    return min(top_k, len(labels))


def read_labels(bundle: Path, config: ClassesConfig) -> list[str]:
    """Return the labels of a classifier; raises `BundleError` where they are not those that the manifest describes."""
    file, count = config.classes.file, config.classes.count
    try:
        labels = (bundle / file).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except ValueError as error:
        raise BundleError(str(bundle), [f"{file} is not UTF-8: {error}"]) from error
    if len(labels) != count or len(set(labels)) != count:
        raise BundleError(str(bundle), [f"{file} does not have {count} different labels"])
    return labels


def best_labels(
    labels: Sequence[str], log_probabilities: Array, classes: Array, counts: Sequence[int]
) -> list[tuple[Label, ...]]:
    """Return the first `counts` `[B]` classes of each row of `[B, k]`, those of probability 0 left out."""
    return [
        tuple(
            Label(labels[number], value)
            for number, value in zip(numbers[:count], values[:count], strict=True)
            if value != -math.inf
        )
        for numbers, values, count in zip(classes.tolist(), log_probabilities.tolist(), counts, strict=True)
    ]
