"""Learns whether requests are about to arrive that a batch should wait for. Pure: no clock, no input or output.

Where a batch has a large fixed cost, as on a GPU, a batch that starts at once splits groups of requests: of clients
that send their next request when they receive a result, some are computed while the others wait, and each part pays the
fixed cost. Waiting is right only where such requests do arrive, so their number is measured, and a batch waits for as
many as groups have had of late: not for the end of a window in which nothing more is to be expected.
"""

import math
from collections import deque

__all__ = ["WORTH_WAITING", "Patience"]

WORTH_WAITING = 1000.0
"""Fixed cost of a batch, in tokens, from which a batch waits for requests that are observed to arrive in groups: that
of GPUs, where a batch of many texts takes hardly longer than one of a few."""

_RETURNING = 0.75
"""Requests that must follow each result of a batch. A Poisson process reaches half a request at most."""
_BURST, _LARGEST_BURST = 3.0, 8.0
"""Requests that must follow each request to an empty queue, and the largest number that counts."""
_SMOOTHING = 0.25
"""Weight of the last measurement."""
_GROUPS = 8
"""Groups whose sizes are remembered."""
_QUANTILE = 0.75
"""Quantile of their sizes that is waited for. A group that is larger is split, and its rest waits for a batch, at least
the fixed cost; a group that is smaller waits for the rest of the window, half of the fixed cost at most. Both cost the
same at the quantile that is the first cost's share of their sum: two thirds or more. Two groups that overlap by chance
look like a large one; they do not count as long as they are rare."""


class Patience:
    """Counts the requests that arrive soon after a batch has completed, and after a request to an empty queue.

    `window`, in all methods, is the longest wait in seconds: half of the fixed cost of a batch, so that a group that
    arrives within it costs less together than in two batches.
    """

    def __init__(self) -> None:
        self._returning, self._bursting = _RETURNING, 0.0
        """Smoothed requests in the window for each result, and for each request to an empty queue. The first result is
        waited for, since clients that return are the rule; the first request is not: it may be alone."""
        self._followers: deque[int] = deque(maxlen=_GROUPS)
        """Requests in the last windows after a request to an empty queue."""
        self._opened, self._base, self._seen, self._after_batch = -math.inf, 0, 0, False
        self._wanted = 0.0
        """Waiting requests with which the batch starts before the window ends; 0 to start at once."""

    def completed(self, now: float, results: int, waiting: int, window: float) -> None:
        """Record that a batch has completed while `waiting` requests wait."""
        if self._wanted and not self._after_batch and now <= self._opened + window:
            return  # a group is arriving
        self._learn()
        self._open(now, results, waiting + results if self._returning >= _RETURNING else 0, after_batch=True)

    def arrived(self, now: float, count: int, waiting: int, window: float, *, computing: bool) -> None:
        """Record requests that arrived while `waiting` others waited, and while a batch was `computing`."""
        within = now <= self._opened + window
        if within and not (self._after_batch and not self._wanted and not waiting and not computing):
            self._seen += count
        elif not waiting:
            if not within:  # a window that ends early teaches nothing
                self._learn()
            expected = count + self._group() if self._bursting >= _BURST else 0
            self._open(now, count, expected, after_batch=False)

    def until(self, waiting: int, window: float) -> float:
        """Return until when the next batch of the waiting requests should wait for others."""
        return self._opened + window if waiting < self._wanted else -math.inf

    def _group(self) -> int:
        """Return how many requests are expected to follow a request to an empty queue."""
        return sorted(self._followers)[int(_QUANTILE * len(self._followers))]

    def _open(self, now: float, base: int, wanted: float, *, after_batch: bool) -> None:
        self._opened, self._base, self._seen, self._wanted, self._after_batch = now, base, 0, wanted, after_batch

    def _learn(self) -> None:
        """Learn from the last window."""
        if not self._base:
            return
        ratio = self._seen / self._base
        if self._after_batch:
            self._returning += _SMOOTHING * (min(ratio, 1.0) - self._returning)
        else:
            self._followers.append(self._seen)
            self._bursting += _SMOOTHING * (min(ratio, _LARGEST_BURST) - self._bursting)
