"""Prediction sets of classes with a chosen coverage: split conformal prediction by adaptive prediction sets.

The score of a class is the probability of all classes that are more probable (Romano et al. 2020, "Classification with
valid and adaptive coverage"), plus a penalty for each rank from a chosen one on (Angelopoulos et al. 2021). The set
has the classes whose score is at most the quantile of the scores of the true classes of the calibration examples.

Shapes: `N` calibration examples, `C` classes, `k` classes of an input, most probable first.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.backend import Array
from models.bundle.contract import Contract, FileName, PositiveInt
from models.errors import BundleError, QueryError

__all__ = ["Coverage", "Penalty", "PredictionSets", "SetPredictor", "drawn", "true_class_rows"]

Rows = NDArray[np.float64]
_COLUMNS = 4
"""Numbers of an example in the file: class, rank, probability of the classes before it, own probability."""
_ROUNDING = 1e-6
"""Differences of scores that are put down to the rounding of the file, which is of float32."""


class Penalty(Contract):
    """The penalty of ranks."""

    weight: Annotated[float, Field(ge=0)] = 0.0
    """What each rank beyond `free_ranks` adds to the score; 0 for none."""
    free_ranks: Annotated[int, Field(ge=0)] = 0
    """Ranks without a penalty."""

    def of(self, ranks: Array) -> Rows:
        """Return the penalties of ranks, which begin with 1."""
        found: Rows = self.weight * np.maximum(0.0, ranks - self.free_ranks)
        return found


class PredictionSets(Contract):
    """Scores of calibration examples, by which sets of classes with any coverage are made."""

    file: FileName
    """Class, rank, probability of the classes before it and own probability of the true class of each example, as
    little-endian float32."""
    examples: PositiveInt
    """Number of calibration examples."""
    in_sets: Annotated[int, Field(ge=0)] | None = None
    """Examples whose right one is in some set; None for all."""
    penalty: Penalty
    """The penalty of ranks, chosen on other validation examples."""

    @classmethod
    def fields_of(cls, rows: Rows) -> dict[str, Any]:
        """Return the fields `examples` and `in_sets` of examples as `true_class_rows` describes them."""
        return {"examples": len(rows), "in_sets": int((rows[:, -1] > 0).sum())}

    def described(self) -> str:
        """Return a description of the sets in words."""
        weight = self.penalty.weight
        penalty = f", penalty {weight:g} from rank {self.penalty.free_ranks + 1} on" if weight else ""
        largest = _largest(self.examples, self.in_sets)
        return f"of any coverage up to {largest:.4g}, {self.examples} calibration examples{penalty}"


def _largest(examples: int, in_sets: int | None = None) -> float:
    """Return the largest coverage that so many examples can give, of which some may be in no set."""
    return (examples if in_sets is None else in_sets) / (examples + 1)


def _places(counts: Array | int, coverage: float) -> Array:
    """Return the place, from 1 on, of the quantile among so many sorted scores; it may be behind the last one."""
    return np.ceil((np.asarray(counts) + 1) * coverage - 1e-9).astype(np.int64)


def true_class_rows(probabilities: Rows, labels: Array) -> Rows:
    """Return class, rank, probability of the classes before it and own probability `[N, 4]` of true classes.

    `probabilities` are `[N, C]`, `labels` `[N]`. A class that has probability 0 ranks behind all others.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranks = np.argmax(order == labels[:, None], axis=1)
    sorted_ = np.take_along_axis(probabilities, order, 1)
    examples = np.arange(len(labels))
    own = sorted_[examples, ranks]
    before = (np.cumsum(sorted_, axis=1) - sorted_)[examples, ranks]
    return np.stack([labels, np.where(own > 0, ranks + 1, probabilities.shape[1]), before, own], axis=1)


def drawn(content: bytes) -> float:
    """Return a number in [0, 1) that depends on the input alone, so that its set is always the same."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=6).digest(), "big") / (1 << 48)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The largest score of a class that is in the set, for a chosen coverage."""

    thresholds: float | Rows
    """One for all classes, or one for each `[C]`."""
    randomized: bool


@dataclass(frozen=True, slots=True)
class SetPredictor:
    """Makes sets of classes from the scores of calibration examples."""

    penalty: Penalty
    labels: tuple[int, ...]
    """Calibration examples of each class."""
    scores: Mapping[bool, Rows]
    """Scores `[N]` of the true classes, randomized or not, in ascending order; infinite for those of probability 0."""
    by_class: Mapping[bool, Rows]
    """The same scores in the order of the classes, those of each in ascending order."""

    @classmethod
    def of(cls, rows: Rows, penalty: Penalty, num_classes: int) -> Self:
        """Return the predictor of examples as `true_class_rows` describes them."""
        classes, ranks, before, own = rows.T
        shares = np.random.default_rng(0).random(len(rows))
        scores, by_class = {}, {}
        for randomized in (False, True):
            found = before + penalty.of(ranks) + (shares * own if randomized else 0.0)
            found = np.where(own > 0, found, np.inf)
            scores[randomized] = np.sort(found)
            by_class[randomized] = found[np.lexsort((found, classes))]
        counts = np.bincount(classes.astype(np.int64), minlength=num_classes)
        return cls(penalty, tuple(counts.tolist()), scores, by_class)

    @classmethod
    def read(cls, bundle: Path, section: PredictionSets, num_classes: int) -> Self:
        """Return the predictor of a bundle; raises `BundleError` for a file of other numbers."""
        content = np.frombuffer((bundle / section.file).read_bytes(), np.uint8)
        if content.size != section.examples * _COLUMNS * 4:
            raise BundleError(str(bundle), [f"{section.file} does not hold {section.examples} calibration examples"])
        rows = content.view("<f4").reshape(-1, _COLUMNS).astype(np.float64)
        whole = np.isfinite(rows).all() and (rows >= 0).all() and (rows[:, 0] % 1 == 0).all()
        if not whole or rows[:, 0].max() >= num_classes:
            raise BundleError(str(bundle), [f"{section.file} holds numbers that are no scores of classes"])
        return cls.of(rows, section.penalty, num_classes)

    @staticmethod
    def written(rows: Rows) -> bytes:
        """Return the content of the file of calibration examples."""
        return rows.astype("<f4").tobytes()

    @property
    def examples(self) -> int:
        """Number of calibration examples."""
        return len(self.scores[False])

    def coverage(self, level: float, *, randomized: bool = False, class_conditional: bool = False) -> Coverage:
        """Return the thresholds of a coverage; raises `QueryError` for one that the examples cannot give.

        With `class_conditional`, a class with enough examples has a threshold of its own (Vovk 2012, Mondrian).
        """
        count, scores = self.examples, self.scores[randomized]
        place = int(_places(count, level))
        if place > count:
            raise QueryError(
                f"a coverage of {level:g} needs {math.ceil(level / (1 - level) - 1e-6)} calibration examples, and this "
                f"model has {count}: at most {_largest(count):.4g} is possible"
            )
        threshold = float(scores[place - 1])
        if math.isinf(threshold):
            reached = _largest(count, int(np.isfinite(scores).sum()))
            raise QueryError(
                f"a coverage of {level:g} is out of reach: the right one of {int(np.isinf(scores).sum())} of {count} "
                f"calibration examples is in no set; at most {reached:.4g} is possible"
            )
        if not class_conditional:
            return Coverage(threshold, randomized)
        return Coverage(self._of_each_class(level, threshold, self.by_class[randomized]), randomized)

    def _of_each_class(self, level: float, threshold: float, scores: Rows) -> Rows:
        """Return thresholds `[C]`, that of all examples for a class which has too few or too improbable ones."""
        counts = np.array(self.labels)
        places, starts = _places(counts, level), np.cumsum(counts) - counts
        enough = places <= counts
        own = scores[np.where(enough, starts + places - 1, 0)]
        return np.where(enough & np.isfinite(own), own, threshold)

    def members(self, log_probabilities: Rows, classes: Array, coverage: Coverage, content: bytes) -> Array:
        """Return which classes are in the set, `[k]`; `content` identifies the input, for randomized sets.

        Both arguments are `[k]`, most probable first; other classes have probability 0, and are in no set.
        """
        own = np.exp(log_probabilities)
        scores = np.cumsum(own) - own + self.penalty.of(np.arange(1, len(own) + 1))
        if coverage.randomized:
            scores = scores + drawn(content) * own
        limits = coverage.thresholds if isinstance(coverage.thresholds, float) else coverage.thresholds[classes]
        found: Array = (scores <= limits + _ROUNDING) & (own > 0)
        return found
