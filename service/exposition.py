"""Collecting `/metrics` while requests are served."""

import asyncio
from collections.abc import Callable

__all__ = ["Exposition"]


class Exposition:
    """Collects metrics on another thread, once for all scrapes that arrive meanwhile. Use from one event loop.

    With several processes a collection reads all their files, which may take longer than the time between two scrapes:
    these must not pile up.
    """

    def __init__(self, collect: Callable[[], bytes]) -> None:
        self._collect = collect
        self._running: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """Return the metrics in Prometheus' text format, as they are now or a moment ago."""
        if self._running is None:
            self._running = asyncio.create_task(asyncio.to_thread(self._collect))
            self._running.add_done_callback(self._collected)
        # A client that disconnects must not cancel what others wait for.
        return await asyncio.shield(self._running)

    def _collected(self, task: "asyncio.Task[bytes]") -> None:
        self._running = None
