"""Collecting `/metrics` while requests are served."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["Exposition"]


class Exposition:
    """Collects metrics on a thread of its own, once for all scrapes that arrive meanwhile. Use from one event loop.

    With several processes a collection reads all their files, which may take longer than the time between two scrapes:
    these must not pile up.
    """

    def __init__(self, collect: Callable[[], bytes]) -> None:
        self._collect = collect
        # Not the loop's executor: that one resolves names, and would be busy where a collection waits for a disk.
        self._thread = ThreadPoolExecutor(1, "softserve-metrics")
        self._running: asyncio.Future[bytes] | None = None

    async def text(self) -> bytes:
        """Return the metrics in Prometheus' text format, as they are now or a moment ago."""
        if self._running is None:
            self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._collect)
            self._running.add_done_callback(self._collected)
        # A client that disconnects must not cancel what others wait for.
        return await asyncio.shield(self._running)

    def close(self) -> None:
        """End the thread; there are no scrapes any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _collected(self, running: "asyncio.Future[bytes]") -> None:
        self._running = None
        if not running.cancelled():
            running.exception()  # asyncio would warn of it where every client has disconnected
