"""The time that a request has, compared with the time of an answer while nothing else is computed.

A deadline that is shorter than that is a client's choice which no capacity helps against: it is told apart from an
overload, so that it is no service error, raises no alert and adds no instance.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["MARGIN", "SHORT_DEADLINE", "Allowance", "too_short"]

MARGIN = 0.5
"""A request is admitted where it is expected to be computed within this fraction of the time to its deadline: entries
overtake others of other lengths, and the estimate has its errors. Measured by `python -m benchmarks.overload`."""
_OVERHEAD = 0.01
"""Seconds of an answer besides the model's: parsing, tokenization, encoding, turns of the event loop and of threads.
They are 2 ms at the median and 6 ms at the 97th percentile, over HTTP on two cores that other processes use too."""
SHORT_DEADLINE = "short_deadline"
"""Reason of a refusal, and key of a request's state."""


def too_short(seconds: float, unloaded: float) -> bool:
    """Return whether so much time is too short for an answer that takes the model so long while it has no other work.

    `unloaded` is 0 where nothing was measured, for which no time is too short.
    """
    return unloaded > 0 and MARGIN * seconds < unloaded + _OVERHEAD


def _unknown() -> tuple[float, float]:
    return 0.0, 0.0


@dataclass(slots=True)
class Allowance:
    """The time of one request from its arrival to its deadline."""

    seconds: float
    stated: bool
    """Whether the client has stated the deadline; the service's default applies otherwise."""
    unloaded: Callable[[], tuple[float, float]] = field(default=_unknown)
    """Returns the seconds that all of its inputs take while nothing else is computed, and the first one alone."""

    preparing: bool = False
    """Whether it passed while the inputs of the request were prepared, which did not wait for others."""

    @property
    def too_short(self) -> bool:
        """Whether an unloaded answer takes longer.

        The service's own default is too short only for many inputs: where it is for one, it is set wrongly, and that is
        an error of the service.
        """
        whole, first = self.unloaded()
        if self.stated:
            return self.preparing or too_short(self.seconds, whole)
        return first <= self.seconds < whole
