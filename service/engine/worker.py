"""Runs the batches of one model: one queue, some threads, one asyncio task between them."""

import abc
import asyncio
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from service.engine.drain import DrainRate
from service.engine.priority import lower_thread_priority
from service.engine.queue import DEFAULT_URGENCY, BatchQueue, Entry, Limits, QueueFull

__all__ = [
    "PAUSE",
    "BatchWorker",
    "DeadlineExceeded",
    "Observer",
    "Operation",
    "Stopped",
    "Timing",
    "Tracer",
    "Waiting",
    "Worker",
    "fail",
    "succeed",
]

logger = logging.getLogger("softserve")

Operation = Callable[[Sequence[Any]], Sequence[Any]]
"""Computes a batch: queries in, one result each, in order. Called on the worker's thread."""


class DeadlineExceeded(Exception):
    """A request whose deadline passed while it waited."""


class Stopped(Exception):
    """A request that came while the worker stops."""


class Query(Protocol):
    """What an operation computes on."""

    @property
    def length(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a request spent waiting and being computed: the longest of its entries."""

    queue: float
    inference: float
    batch: int = 0
    """Number of the batch that it was part of, the last of several; a worker counts its own."""


class Observer(Protocol):
    """What wants to know how the worker does; see `service.metrics`."""

    def queued(self, items: int, tokens: int) -> None: ...

    def batch(self, lengths: Sequence[int], waits: Sequence[float], seconds: float) -> None: ...

    def rejected(self, reason: str, items: int) -> None: ...

    def generated(self, tokens: int) -> None: ...


class Tracer(Protocol):
    """What follows requests into their batches; see `service.tracing`."""

    def context(self) -> Any: ...

    def batch(self, number: int, lengths: Sequence[int], requests: Sequence[Any], seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """A query and whoever waits for its result."""

    query: Query
    future: "asyncio.Future[tuple[Any, Timing]]"
    trace: Any = None
    """The context of its request, where there is a tracer."""


PAUSE = 1.0
"""Seconds that a device gets nothing to do after a failure, where there are others: a broken one fails fast, and would
take all there is."""
_PREPARING = 2
"""Requests with heavy inputs that are made ready at once: an image of 16 megapixels takes some 150 MB meanwhile."""


class Worker(abc.ABC):
    """Queues the concurrent requests of one model and computes them together. Use from one event loop."""

    def __init__(self, limits: Limits, observer: Observer, *, threads: int = 1, tracer: Tracer | None = None) -> None:
        self.limits = limits
        self._tracer = tracer
        self.preparing = asyncio.Semaphore(_PREPARING)
        """Held while a request's heavy inputs, such as images, are made ready for the model."""
        self._queue: BatchQueue[Waiting] = BatchQueue(limits)
        self._observer = observer
        self._drain = DrainRate()
        self._batches = 0
        self._wake = asyncio.Event()
        self._stopping = False
        self._thread = ThreadPoolExecutor(threads, "softserve-model", initializer=lower_thread_priority)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Refuses what comes from now on and returns when all that waits is computed."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def submit(
        self, operation: str, queries: Sequence[Query], deadline: float, urgency: int = DEFAULT_URGENCY
    ) -> tuple[list[Any], Timing]:
        """Results of the queries in order; `deadline` is on the clock of `time.monotonic`, `urgency` 0 the greatest.

        Only queries of one operation are computed together.

        Raises `QueueFull` at once where there is no room, `DeadlineExceeded` where the deadline passed before the
        work began, `Stopped`, and what the operation raises. A cancelled call takes its queries out of the queue, and
        out of a running decoding at its next step.
        """
        if self._stopping:
            raise Stopped
        self.admit(len(queries))
        loop, now = asyncio.get_running_loop(), time.monotonic()
        context = self._tracer.context() if self._tracer else None
        entries = [
            Entry(
                operation=operation,
                length=query.length,
                arrived=now,
                deadline=deadline,
                urgency=urgency,
                payload=Waiting(query, loop.create_future(), context),
            )
            for query in queries
        ]
        self._push(entries)
        self._wake.set()
        try:
            if len(entries) == 1:
                answers = [await entries[0].payload.future]
            else:
                answers = await asyncio.gather(*(entry.payload.future for entry in entries))
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._observer.rejected("cancelled", sum(entry.payload.future.cancelled() for entry in entries))
            for entry in entries:  # where one failed, nobody waits for the others
                entry.payload.future.cancel()
            self._queue.remove(entries)
            self._report_queue()
            raise
        timing = Timing(
            max((timing.queue for _, timing in answers), default=0.0),
            max((timing.inference for _, timing in answers), default=0.0),
            max((timing.batch for _, timing in answers), default=0),
        )
        return [result for result, _ in answers], timing

    def admit(self, items: int) -> None:
        """Raises `QueueFull` where so many queries have no room, or what waits already takes too long.

        `submit` asks too, of their lengths as well; whoever asks before spares itself the work of making them.
        """
        never = items > self.limits.max_queue_items
        wait = self._drain.seconds(self._queue.tokens)
        if never or len(self._queue) + items > self.limits.max_queue_items or wait > self.limits.max_wait:
            self._observer.rejected("overloaded", items)
            raise QueueFull(never=never, retry_after=wait)

    def _push(self, entries: Sequence[Entry[Waiting]]) -> None:
        try:
            self._queue.push(entries)
        except QueueFull as error:
            self._observer.rejected("overloaded", len(entries))
            raise QueueFull(never=error.never, retry_after=self._drain.seconds(self._queue.tokens)) from error
        self._report_queue()

    def _report_queue(self) -> None:
        self._observer.queued(len(self._queue), self._queue.tokens)

    @abc.abstractmethod
    async def _run(self) -> None:
        """Computes what comes until there is nothing left and `stop` was called."""

    async def _sleep(self) -> bool:
        """Waits for a request; False where none came and none will."""
        if self._stopping:
            return False
        self._wake.clear()
        await self._wake.wait()
        return True

    def _drop_expired(self) -> None:
        expired = self._queue.expired(time.monotonic())
        if expired:
            self._observer.rejected("expired", len(expired))
            self._report_queue()
        for entry in expired:
            fail(entry, DeadlineExceeded())


def fail(entry: Entry[Waiting], error: Exception) -> None:
    """Hands an error to whoever waits for the entry."""
    if not entry.payload.future.done():
        entry.payload.future.set_exception(error)


def succeed(entry: Entry[Waiting], result: object, timing: Timing) -> None:
    """Hands the result to whoever waits for the entry."""
    if not entry.payload.future.done():
        entry.payload.future.set_result((result, timing))


class BatchWorker(Worker):
    """Computes batches, one or several at once, on one or several devices."""

    def __init__(
        self,
        devices: Sequence[Mapping[str, Operation]],
        limits: Limits,
        observer: Observer,
        *,
        parallel_batches: int = 1,
        tracer: Tracer | None = None,
    ) -> None:
        """The operations of each device that holds the model; a device computes so many batches at once."""
        super().__init__(limits, observer, threads=parallel_batches * len(devices), tracer=tracer)
        self._several = len(devices) > 1
        self._free: asyncio.Queue[Mapping[str, Operation]] = asyncio.Queue()
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
            task = asyncio.create_task(self._compute(batch, operations))
            self._running.add(task)
            task.add_done_callback(functools.partial(self._computed, operations))
        if self._running:
            await asyncio.wait(self._running)

    def _computed(self, operations: Mapping[str, Operation], task: "asyncio.Task[bool]") -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("a batch was computed, and then: %r", error)
        if self._several and not task.cancelled() and error is None and not task.result():
            task.get_loop().call_later(PAUSE, self._free.put_nowait, operations)
        else:
            self._free.put_nowait(operations)

    async def _has_batch(self) -> bool:
        """Waits for a batch that is to run now; False where none came and none will."""
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

    async def _compute(self, batch: Sequence[Entry[Waiting]], operations: Mapping[str, Operation]) -> bool:
        """Runs one batch; what it raises goes to the requests in it and to nobody else. Whether it raised nothing."""
        self._report_queue()
        self._batches += 1
        number, started, queries = self._batches, time.monotonic(), [entry.payload.query for entry in batch]
        try:
            operation = operations[batch[0].operation]
            results = await asyncio.get_running_loop().run_in_executor(self._thread, operation, queries)
            if len(results) != len(batch):
                raise ValueError(f"{batch[0].operation} gave {len(results)} results for {len(batch)} queries")
        except Exception as error:
            for entry in batch:
                fail(entry, error)
            return False
        seconds = time.monotonic() - started
        self._drain.record(sum(entry.length for entry in batch), seconds / len(self._running))
        waits = [started - entry.arrived for entry in batch]
        for entry, result, wait in zip(batch, results, waits, strict=True):
            succeed(entry, result, Timing(wait, seconds, number))
        lengths = [entry.length for entry in batch]
        self._observer.batch(lengths, waits, seconds)
        if self._tracer is not None:
            self._tracer.batch(number, lengths, [entry.payload.trace for entry in batch], seconds)
        return True
