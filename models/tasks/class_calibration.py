"""Calibrated probabilities of classes: a map of log-probabilities that is fitted on the validation split.

Shapes: `B` inputs, `k` classes, `C` all classes of the model. All log-probabilities are base e.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from models.backend import Array
from models.bundle.contract import Contract, PositiveInt

__all__ = ["Calibration", "CalibrationMethod", "log_softmax"]

CalibrationMethod = Literal["temperature", "vector scaling", "logistic"]
_NAMES = {"temperature": "temperature", "logistic": "logistic, temperature"}
Positive = Annotated[float, Field(gt=0)]
LogProbabilities = NDArray[np.float64]


def log_softmax(scores: LogProbabilities) -> LogProbabilities:
    """Return the log-probabilities of scores `[B, k]`; those of minus infinity stay so."""
    found: LogProbabilities = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    return found


class Calibration(Contract):
    """How probabilities of classes are calibrated; those of 0 stay 0.

    `temperature` (Guo et al. 2017) divides the log-probabilities before another softmax, which is the softmax,
    sparse-softmax or mixture with all its scores divided. `vector scaling` has a factor and an offset for each class.
    `logistic` (Platt 1999) divides the log-odds of each class and adds an offset: the probability that the class is
    one of those of an input that may have several.
    """

    method: CalibrationMethod
    """`temperature`, `vector scaling` or `logistic`."""
    temperature: Positive = 1.0
    """The divisor of log-probabilities, or of log-odds; 1 with vector scaling."""
    offset: float = 0.0
    """Number that is added to the log-odds; 0 for other methods than `logistic`."""
    factors: tuple[Positive, ...] = ()
    """A factor of each class, with vector scaling."""
    offsets: tuple[float, ...] = ()
    """An offset of each class, with vector scaling."""
    examples: PositiveInt
    """Number of validation examples that it was fitted on."""

    @model_validator(mode="after")
    def _of_its_method(self) -> Self:
        scaled = self.method == "vector scaling"
        if bool(self.factors) != scaled or len(self.factors) != len(self.offsets):
            raise ValueError("vector scaling, and it alone, has a factor and an offset for each class")
        if (self.offset and self.method != "logistic") or (self.temperature != 1 and scaled):
            raise ValueError(f"{self.method} has no such temperature or offset")
        return self

    @property
    def needs_all_classes(self) -> bool:
        """Whether the probability of a class depends on those of all others."""
        return self.method != "logistic"

    def apply(self, log_probabilities: Array, classes: Array) -> tuple[LogProbabilities, Array]:
        """Return calibrated log-probabilities `[B, k]` and numbers of classes `[B, k]`, most probable first.

        Both arguments are `[B, k]`, most probable first; `k` is `C` where the method needs all classes.
        """
        values = log_probabilities.astype(np.float64)
        if self.method == "logistic":
            return self._logistic(values), classes
        if self.method == "temperature":
            return log_softmax(values / self.temperature), classes
        scaled = log_softmax(values * np.array(self.factors)[classes] + np.array(self.offsets)[classes])
        order = np.argsort(-scaled, axis=1, kind="stable")
        return np.take_along_axis(scaled, order, 1), np.take_along_axis(classes, order, 1)

    def table(self, log_probabilities: LogProbabilities) -> LogProbabilities:
        """Return the calibrated log-probabilities `[B, C]` of those of all classes, in the order of their numbers."""
        numbers = np.broadcast_to(np.arange(log_probabilities.shape[1]), log_probabilities.shape)
        values, classes = self.apply(log_probabilities, numbers)
        found = np.empty_like(values)
        np.put_along_axis(found, classes, values, 1)
        return found

    def _logistic(self, values: LogProbabilities) -> LogProbabilities:
        with np.errstate(divide="ignore"):
            odds = values - np.log(-np.expm1(values))  # a probability of 1 has infinite odds
        return -np.logaddexp(0, -(odds / self.temperature + self.offset))

    def summary(self) -> Mapping[str, object]:
        """Return the facts that lists of models have: all but the numbers of each class."""
        return self.model_dump(exclude={"factors", "offsets"})

    def described(self) -> str:
        """Return the calibration in words."""
        how = self.method if self.factors else f"{_NAMES[self.method]} {self.temperature:.4g}"
        return f"{how}, fitted on {self.examples} validation examples"
