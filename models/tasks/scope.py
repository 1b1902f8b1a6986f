"""When an input of a classifier is out of scope, that is of no class, and which threshold has which rate of errors."""

import itertools
import math
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from models.bundle.contract import Contract
from models.errors import QueryError

__all__ = ["OutOfScope", "ScopePoint"]

Fraction = Annotated[float, Field(ge=0, le=1)]


class ScopePoint(Contract):
    """A threshold of the best class, and how it decides on validation examples."""

    threshold: Annotated[float, Field(allow_inf_nan=False)]
    """Least probability, or score, of the best class of an input that is in scope."""
    detected: Fraction | None = None
    """Fraction of the inputs out of scope that were below the threshold; None where there were none."""
    rejected: Fraction
    """Fraction of the inputs in scope that were below the threshold."""


class OutOfScope(ScopePoint):
    """When an input is out of scope, that is of no class, chosen on the validation split."""

    score: Literal["probability", "logit"] = "probability"
    """The number of the best class that thresholds are of: its calibrated probability (Hendrycks and Gimpel 2017), or
    its score before the softmax (Hendrycks et al. 2022), which also tells inputs that fit no class from those that fit
    two."""
    trade_off: tuple[ScopePoint, ...] = ()
    """Thresholds that a rate can be chosen of, ascending; others are interpolated between them."""

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        for each in (self.threshold, *(point.threshold for point in self.trade_off)):
            if self.score == "probability" and not 0 <= each <= 1:
                raise ValueError(f"a threshold of probabilities must be from 0 to 1, not {each:g}")
        return self

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        thresholds = [point.threshold for point in self.trade_off]
        if any(one >= other for one, other in itertools.pairwise(thresholds)):
            raise ValueError("the thresholds of trade_off must ascend")
        return self

    def described(self) -> str:
        """Return the condition of an input out of scope, such as `a probability below 0.5`."""
        number = "a probability" if self.score == "probability" else "a score before the softmax"
        return f"{number} below {self.threshold:g}"

    def with_reject_rate(self, rate: float) -> Self:
        """Return the rule that refuses this fraction of the inputs in scope; raises `QueryError`."""
        return self._with_rate("reject_rate", rate, [point.rejected for point in self._points()])

    def with_pass_rate(self, rate: float) -> Self:
        """Return the rule that this fraction of the inputs out of scope passes; raises `QueryError`."""
        passed = [1 - point.detected for point in self._points() if point.detected is not None]
        if not passed:
            raise QueryError("pass_rate: the model had no examples of inputs out of scope")
        return self._with_rate("pass_rate", rate, passed)

    def with_threshold(self, threshold: float) -> Self:
        """Return the rule of another threshold, with fractions of the trade-off where there is one."""
        if self.score == "probability" and not 0 <= threshold <= 1:
            raise QueryError(f"threshold must be from 0 to 1, not {threshold:g}")
        if not math.isfinite(threshold):
            raise QueryError(f"threshold must be a finite number, not {threshold:g}")
        points = self.trade_off or (self,)
        known = [point.threshold for point in points]
        detected = [point.detected for point in points if point.detected is not None]
        changes: dict[str, object] = {
            "threshold": threshold,
            "rejected": _between(threshold, known, [point.rejected for point in points]),
            "detected": _between(threshold, known, detected) if detected else None,
        }
        return self.model_copy(update=changes)

    def _points(self) -> tuple[ScopePoint, ...]:
        if not self.trade_off:
            raise QueryError("the bundle has no thresholds to choose by a rate: run softserve-train calibrate")
        return self.trade_off

    def _with_rate(self, name: str, rate: float, rates: list[float]) -> Self:
        """Return the rule of the threshold that has a rate, which falls or rises with the thresholds."""
        low, high = min(rates), max(rates)
        if not low <= rate <= high:
            raise QueryError(f"{name} must be from {low:.4f} to {high:.4f}, not {rate:g}")
        thresholds = [point.threshold for point in self.trade_off]
        if rates[0] > rates[-1]:
            rates, thresholds = rates[::-1], thresholds[::-1]
        return self.with_threshold(_between(rate, rates, thresholds))


def _between(value: float, known: list[float], values: list[float]) -> float:
    return round(float(np.interp(value, known, values)), 6)
