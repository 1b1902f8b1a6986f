"""Learns whether requests are about to arrive that a batch should wait for. Pure: no clock, no input or output.

On a device whose batches have a large fixed cost, a batch that starts at once splits groups of requests: of clients
that all send their next request when they receive a result, a few are computed while the others wait, and both halves
pay the fixed cost. Waiting is right only where such requests do arrive, so their number is measured.
"""

import math

__all__ = ["Patience"]

_RETURNING = 0.75
"""Fraction of the results of a batch that must be followed by requests. A Poisson process reaches half at most."""
_BURST, _LARGEST_BURST = 3.0, 8.0
"""Requests that must follow each request to an idle device, and the largest number that counts."""
_SMOOTHING = 0.25
"""Weight of the last measurement."""


class Patience:
    """Counts the requests that arrive soon after a batch has completed, and after a request to an idle device.

    `window`, in all methods, is the longest wait in seconds: a part of the fixed cost of a batch.
    """

    def __init__(self) -> None:
        self._returning = self._bursting = 0.0
        """Smoothed: arrivals in the window for each result, and for each request to an idle device."""
        self._opened, self._base, self._seen, self._after_batch = -math.inf, 0, 0, False
        self._wanted = 0.0
        """Waiting requests with which the batch starts before the window ends."""

    def completed(self, now: float, results: int, waiting: int, window: float) -> None:
        """Record that a batch has completed while `waiting` requests wait."""
        if self._wanted == math.inf and now <= self._opened + window:
            return  # a burst is arriving
        self._open(now, results, after_batch=True)
        self._wanted = waiting + round(self._returning * results) if self._returning >= _RETURNING else 0

    def arrived(self, now: float, count: int, waiting: int, window: float) -> None:
        """Record requests that arrived while `waiting` others waited."""
        if now <= self._opened + window:
            self._seen += count
        elif not waiting:
            self._open(now, count, after_batch=False)
            self._wanted = math.inf if self._bursting >= _BURST else 0

    def until(self, waiting: int, window: float) -> float:
        """Return until when the next batch of the waiting requests should wait for others."""
        return self._opened + window if waiting < self._wanted else -math.inf

    def _open(self, now: float, base: int, *, after_batch: bool) -> None:
        """Begin a window, and learn from the last one."""
        if self._base:
            ratio = self._seen / self._base
            if self._after_batch:
                self._returning += _SMOOTHING * (min(ratio, 1.0) - self._returning)
            else:
                self._bursting += _SMOOTHING * (min(ratio, _LARGEST_BURST) - self._bursting)
        self._opened, self._base, self._seen, self._after_batch = now, base, 0, after_batch
