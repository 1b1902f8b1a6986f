"""Sets of next words with a chosen coverage: prediction sets over the most probable words, or tokens.

The score of a word is the probability of the listed words that are more probable (`models.tasks.prediction_sets`). A
calibration example is the word that follows a beginning of a text; where it is not listed, no set holds it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Protocol, TypedDict, TypeVar, cast

import numpy as np
from pydantic import Field

from models.bundle.contract import Contract
from models.errors import QueryError
from models.operations.language import MOST_SET_WORDS, Unit
from models.tasks.prediction_sets import Coverage, PredictionSets, SetPredictor
from models.text.config import TextConfig

__all__ = ["CoverageOptions", "UnitSets", "WordConfig", "WordCoverage", "WordPredictor", "WordSets", "read_word_sets"]

_UNITS: tuple[Unit, ...] = ("word", "token")


class UnitSets(PredictionSets):
    """Scores of calibration examples, by which sets of words, or of tokens, are made."""

    listed: Annotated[int, Field(ge=1, le=MOST_SET_WORDS)]
    """The most probable words that are candidates of a set."""


class WordSets(Contract):
    """Calibration examples of next words, by the unit of these."""

    word: UnitSets | None = None
    """Examples of words."""
    token: UnitSets | None = None
    """Examples of tokens, of a model of subwords."""

    @property
    def by_unit(self) -> Mapping[Unit, UnitSets]:
        """The examples of the units that have some."""
        found = {"word": self.word, "token": self.token}
        return {unit: each for unit in _UNITS if (each := found[unit]) is not None}


class WordConfig(TextConfig):
    """The section of a model that predicts next words."""

    sets: WordSets | None = None
    """Calibration examples, by which sets of next words with any coverage are made."""

    def files(self) -> frozenset[str]:
        own = () if self.sets is None else (each.file for each in self.sets.by_unit.values())
        return super().files().union(own)

    def summary(self) -> Mapping[str, object]:
        words = None if self.sets is None else self.sets.word
        return {**super().summary(), "calibration_examples": None if words is None else words.examples}

    def description(self) -> Mapping[str, str]:
        sets = {} if self.sets is None else self.sets.by_unit
        told = {
            f"sets of next {unit}s": f"{each.described()}, of the {each.listed} most probable"
            for unit, each in sets.items()
        }
        return {**super().description(), **told}


class CoverageOptions(TypedDict, total=False):
    """Options of next words in addition to their number."""

    coverage: float | None
    """Return a set with this coverage in place of the most probable words."""
    randomized: bool
    """Whether sets have exactly the coverage on average; they may be empty then."""


class Candidate(Protocol):
    """A next word of a result."""

    @property
    def log_probability(self) -> float: ...


CandidateT = TypeVar("CandidateT", bound=Candidate)
ResultT = TypeVar("ResultT")


class WordCoverage:
    """A chosen coverage of a set of next words."""

    __slots__ = ("_chosen", "_predictor", "examples", "listed")

    def __init__(self, predictor: SetPredictor, chosen: Coverage, listed: int) -> None:
        self._predictor, self._chosen = predictor, chosen
        self.listed, self.examples = listed, predictor.examples

    def of(self, words: Sequence[CandidateT], context: str) -> tuple[CandidateT, ...]:
        """Return the set among the most probable words; a randomized set depends on the context."""
        values = np.array([each.log_probability for each in words], np.float64)
        content = context.encode("utf-8", "surrogateescape")
        members = self._predictor.members(values, np.zeros(len(values), np.int64), self._chosen, content)
        return tuple(word for word, member in zip(words, members.tolist(), strict=True) if member)

    def applied(self, result: ResultT) -> ResultT:
        """Return a result with the set in place of its words."""
        found = cast(Any, result)
        words = self.of(found.words, found.context)
        return cast(ResultT, replace(found, words=words, calibration_examples=self.examples))


class WordPredictor:
    """Makes sets of next words of the calibration examples of a bundle."""

    def __init__(self, predictors: Mapping[Unit, tuple[SetPredictor, int]] | None = None) -> None:
        """`predictors` are those of units, with the number of candidates of a set."""
        self._predictors = predictors or {}

    def coverage(self, unit: Unit, *, coverage: float | None = None, randomized: bool = False) -> WordCoverage | None:
        """Return a chosen coverage, None without one; raises `QueryError` for one that the examples cannot give."""
        if coverage is None:
            if randomized:
                raise QueryError("randomized needs a coverage")
            return None
        if not 0 < coverage < 1:
            raise QueryError(f"coverage must be between 0 and 1, not {coverage:g}")
        if unit not in self._predictors:
            raise QueryError(f"this model has no calibration examples of {unit}s, so that no coverage can be chosen")
        predictor, listed = self._predictors[unit]
        return WordCoverage(predictor, predictor.coverage(coverage, randomized=randomized), listed)


def read_word_sets(bundle: Path, section: WordSets | None) -> WordPredictor:
    """Return the predictor of a bundle, which may have no examples; raises `BundleError` for a wrong file."""
    found = {} if section is None else section.by_unit
    return WordPredictor({unit: (SetPredictor.read(bundle, each, 1), each.listed) for unit, each in found.items()})
