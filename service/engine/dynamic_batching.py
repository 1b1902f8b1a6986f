"""Dynamic batching: queued requests are computed in batches, several of them concurrently."""

import asyncio
import functools
import logging
import time
from collections.abc import Mapping, Sequence

from models.tasks.model import BatchFunction
from service.engine.batcher import PAUSE, Batcher, Observer, Timing, Tracer, Waiting, fail, succeed
from service.engine.queue import Entry, Limits

__all__ = ["DynamicBatcher"]

logger = logging.getLogger("softserve")


class DynamicBatcher(Batcher):
    """Computes batches, one or several concurrently, on one or several devices."""

    def __init__(
        self,
        devices: Sequence[Mapping[str, BatchFunction]],
        limits: Limits,
        observer: Observer,
        *,
        parallel_batches: int = 1,
        tracer: Tracer | None = None,
    ) -> None:
        """`devices` holds the operations of each replica, which computes up to `parallel_batches` concurrently."""
        super().__init__(limits, observer, threads=parallel_batches * len(devices), tracer=tracer)
        self._several = len(devices) > 1
        self._free: asyncio.Queue[Mapping[str, BatchFunction]] = asyncio.Queue()
        for operations in [*devices] * parallel_batches:
            self._free.put_nowait(operations)
        self._running: set[asyncio.Task[bool]] = set()

    async def _run(self) -> None:
        while await self._has_batch():
            operations = await self._free.get()
            self._drop_expired()
            batch = self._queue.next_batch(time.monotonic())
            if not batch:  # all of it was cancelled or expired meanwhile
                self._free.put_nowait(operations)
                continue
            cost = sum(entry.cost for entry in batch)
            self._computing += cost
            task = asyncio.create_task(self._compute(batch, operations))
            self._running.add(task)
            task.add_done_callback(functools.partial(self._computed, operations, cost))
        if self._running:
            await asyncio.wait(self._running)

    def _computed(self, operations: Mapping[str, BatchFunction], cost: int, task: "asyncio.Task[bool]") -> None:
        self._running.discard(task)
        self._computing -= cost
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("an error after a batch was computed: %r", error)
        if self._several and not task.cancelled() and error is None and not task.result():
            task.get_loop().call_later(PAUSE, self._free.put_nowait, operations)
        else:
            self._free.put_nowait(operations)

    async def _has_batch(self) -> bool:
        """Wait until a batch is due; return False once the batcher stops and the queue is empty."""
        while True:
            self._drop_expired()
            ready = self._queue.ready_at()
            if ready is None:
                if not await self._sleep():
                    return False
            elif not self._stopping and (delay := ready - time.monotonic()) > 0:
                self._wake.clear()
                await self._wait(delay)
            else:
                return True

    async def _wait(self, delay: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), delay)
        except TimeoutError:
            return

    async def _compute(self, batch: Sequence[Entry[Waiting]], operations: Mapping[str, BatchFunction]) -> bool:
        """Run one batch; return whether it succeeded. An error is set on the requests of this batch only."""
        self._report_queue()
        self._batches += 1
        number, started, parts = self._batches, time.monotonic(), [entry.payload.part for entry in batch]
        try:
            operation = operations[batch[0].operation]
            outputs = await asyncio.get_running_loop().run_in_executor(self._thread, operation, parts)
            if len(outputs) != len(batch):
                raise ValueError(f"{batch[0].operation} returned {len(outputs)} results for {len(batch)} queries")
        except Exception as error:
            for entry in batch:
                fail(entry, error)
            return False
        seconds = time.monotonic() - started
        self._drain.record(sum(entry.cost for entry in batch), seconds / len(self._running))
        waits = [started - entry.arrived for entry in batch]
        for entry, output, wait in zip(batch, outputs, waits, strict=True):
            succeed(entry, output, Timing(wait, seconds, number))
        lengths = [entry.length for entry in batch]
        self._observer.batch(lengths, waits)
        self._observer.computed(seconds)
        if self._tracer is not None:
            self._tracer.batch(number, lengths, [entry.payload.trace for entry in batch], seconds)
        return True
