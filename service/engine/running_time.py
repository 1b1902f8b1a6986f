"""A clock that stands still while the process is paused: a pause is not a hang."""

import time
from collections.abc import Callable

__all__ = ["RunningTime"]


class RunningTime:
    """The seconds for which the process has run, by a caller that looks at the clock again and again.

    A process that is stopped (SIGSTOP, `docker pause`, a suspended machine) looks at no clock. So of the time between
    two looks at most twice the intended period counts, and no timeout ends because of a pause.
    """

    def __init__(self, period: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`period` is the intended time between two calls of `advance`, in seconds."""
        self.period = period
        self.seconds = 0.0
        """The time at the last call of `advance`."""
        self._clock, self._last = clock, clock()

    def advance(self) -> float:
        """Return the time by now."""
        now = self._clock()
        self.seconds += min(now - self._last, 2 * self.period)
        self._last = now
        return self.seconds
