"""Sets of translations with a chosen coverage: the fewest of the best translations that hold an acceptable one.

The score of a translation is the probability that one before it is acceptable, by the confidence in each, as if these
did not depend on each other (`models.tasks.prediction_sets`, `models.tasks.translation_confidence`). A calibration
example is a sentence with its reference; where no translation of the beam is acceptable, no set holds one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from models.bundle.contract import PositiveInt
from models.decoding.beam_search import SearchOptions
from models.errors import QueryError
from models.tasks.prediction_sets import Coverage, PredictionSets, Rows, SetPredictor

__all__ = ["TranslationPredictor", "TranslationSets", "first_acceptable"]


class TranslationSets(PredictionSets):
    """Scores of calibration examples, by which sets of translations are made."""

    beam_size: PositiveInt
    """Hypotheses of the search; all are candidates of a set."""


def first_acceptable(confidences: Sequence[float]) -> Rows:
    """Return the probability that each translation is acceptable and none before it is: `[K]` -> `[K]`.

    `confidences` are the probabilities that each of them is acceptable.
    """
    found = np.asarray(confidences, np.float64)
    first: Rows = found * np.cumprod(np.concatenate([[1.0], 1 - found[:-1]]))
    return first


class TranslationPredictor:
    """Makes sets of translations of the calibration examples of a bundle."""

    def __init__(self, predictor: SetPredictor, beam_size: int) -> None:
        """`beam_size` is that of the search which the examples were translated by."""
        self._predictor, self.beam_size = predictor, beam_size

    @classmethod
    def read(cls, bundle: Path, section: TranslationSets) -> Self:
        """Return the predictor of a bundle; raises `BundleError` for a wrong file."""
        return cls(SetPredictor.read(bundle, section, 1), section.beam_size)

    @property
    def examples(self) -> int:
        """Number of calibration examples."""
        return self._predictor.examples

    def coverage(self, level: float, beam_size: int, options: SearchOptions) -> Coverage:
        """Return a chosen coverage.

        Raises `QueryError` for one that the examples cannot give, and for another search than theirs.
        """
        if not 0 < level < 1:
            raise QueryError(f"coverage must be between 0 and 1, not {level:g}")
        usual = SearchOptions()
        other = [name for name in ("length_penalty", "temperature", "sparse") if _differs(name, options, usual)]
        if beam_size != self.beam_size:
            other.insert(0, "beam_size")
        if other:
            raise QueryError(
                f"coverage: sets hold for beam size {self.beam_size} and the defaults of the search, so that "
                f"{' and '.join(other)} cannot be chosen"
            )
        return self._predictor.coverage(level)

    def size(self, confidences: Sequence[float], coverage: Coverage) -> int:
        """Return how many of the best translations are in the set; at least 1."""
        with np.errstate(divide="ignore"):
            values = np.log(first_acceptable(confidences))
        members = self._predictor.members(values, np.zeros(len(values), np.int64), coverage, b"")
        return int(np.flatnonzero(members)[-1]) + 1 if members.any() else 1


def _differs(name: str, options: SearchOptions, usual: SearchOptions) -> bool:
    return bool(getattr(options, name) != getattr(usual, name))
