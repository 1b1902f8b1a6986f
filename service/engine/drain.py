"""The measured drain rate of a queue, from which admission and `Retry-After` derive the expected wait."""

import math

__all__ = ["DrainRate"]

_MEMORY = 3.0
"""Seconds of work after which a measurement has 1 / e of its weight."""


class DrainRate:
    """The cost that a model finishes in a second of work, recent work weighing most."""

    def __init__(self, expected: float = 0.0) -> None:
        """`expected` is the time that one unit of cost takes, in seconds; 0 where it is not known.

        It counts like `_MEMORY` seconds of measured work: of many texts that are decoded together one finishes first,
        and by its work alone all others would seem to take many times as long.
        """
        self._cost, self._seconds = (_MEMORY / expected, _MEMORY) if expected else (0.0, 0.0)

    def record(self, cost: float, seconds: float) -> None:
        """Note work of so many seconds, which finished entries of this cost; none for a decoding step."""
        kept = math.exp(-seconds / _MEMORY)
        self._cost = kept * self._cost + cost
        self._seconds = kept * self._seconds + seconds

    def seconds(self, cost: float) -> float:
        """Return how long such a cost takes."""
        return cost * self._seconds / self._cost if self._cost else 0.0
