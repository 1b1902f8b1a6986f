"""The lag of the event loop: the delay that blocking calls cause for every other request."""

import asyncio
import time
from typing import Protocol

__all__ = ["measure_loop_lag"]

_INTERVAL = 0.01
"""Seconds between measurements: any delay of this length or more is part of at least one."""


class Histogram(Protocol):
    """Records the measurements; see `service.observability.metrics`."""

    def observe(self, amount: float) -> None: ...


async def measure_loop_lag(lag: Histogram) -> None:
    """Record by how many seconds a timer of the running event loop is late, again and again, until cancelled."""
    while True:
        started = time.monotonic()
        await asyncio.sleep(_INTERVAL)
        # uvloop rounds timers to milliseconds, so that one may be early.
        lag.observe(max(0.0, time.monotonic() - started - _INTERVAL))
