"""Runs the batches of one model: one queue, an executor, and an asyncio task that connects them."""

import abc
import asyncio
import contextlib
import functools
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from service.engine.drain import DrainRate
from service.engine.priority import lower_thread_priority
from service.engine.queue import DEFAULT_URGENCY, BatchQueue, Entry, Limits, QueueFull

__all__ = [
    "PAUSE",
    "BatchWorker",
    "DeadlineExceeded",
    "EngineFailed",
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
    """A request whose deadline passed before its result was there."""


class Stopped(Exception):
    """A request that arrived while the worker stops."""


class EngineFailed(Exception):
    """A request to a model whose engine task has ended by an error; only loading the model again mends it."""


class Query(Protocol):
    """Input of an operation: one checked and tokenized text, or a decoded image."""

    @property
    def length(self) -> int:
        """Tokens."""
        ...

    @property
    def result_items(self) -> int:
        """Words, labels or tokens that the result may have."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a request spent waiting and being computed: the longest of its entries."""

    queue: float
    inference: float
    batch: int = 0
    """Number of the batch that it was part of, the last of several; a worker counts its own."""


class Observer(Protocol):
    """Receives the events of a worker; see `service.metrics`."""

    def queued(self, items: int, tokens: int) -> None: ...
    def batch(self, lengths: Sequence[int], waits: Sequence[float]) -> None: ...
    def computed(self, seconds: float) -> None: ...
    def rejected(self, reason: str, items: int) -> None: ...
    def generated(self, tokens: int) -> None: ...
    def failed(self) -> None: ...


class Tracer(Protocol):
    """Links batches to the spans of their requests; see `service.tracing`."""

    def context(self) -> Any: ...
    def batch(self, number: int, lengths: Sequence[int], requests: Sequence[Any], seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """A query and the future of its result."""

    query: Query
    future: "asyncio.Future[tuple[Any, Timing]]"
    trace: Any = None
    """The context of its request, where there is a tracer."""


PAUSE = 1.0
"""Seconds that a device gets nothing to do after a failure, where there are others: a broken one fails fast, and would
take all there is."""
_MARGIN = 0.5
"""A request is admitted where it is expected to be computed within this fraction of the time to its deadline: entries
overtake others of other lengths, and the estimate has its errors. Measured by `python -m benchmarks.overload`."""


class Worker(abc.ABC):
    """Queues the concurrent requests of one model and computes them together. Use from one event loop."""

    def __init__(self, limits: Limits, observer: Observer, *, threads: int = 1, tracer: Tracer | None = None) -> None:
        self.limits = limits
        self._tracer = tracer
        self._queue: BatchQueue[Waiting] = BatchQueue(limits)
        self._observer = observer
        self._drain = DrainRate()
        self._batches = 0
        self._wake = asyncio.Event()
        self._stopping = False
        self._preparing = self._computing = 0
        """Queries that are being prepared, and cost of the entries that are being computed."""
        self._submitted: set[asyncio.Future[tuple[Any, Timing]]] = set()
        self._thread = ThreadPoolExecutor(threads, "softserve-model", initializer=lower_thread_priority)
        self._task: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        """What ended the engine task, after which nothing is computed any more."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Fail everything that is pending where the engine task did not end by `stop`."""
        if self._stopping and not task.cancelled() and task.exception() is None:
            return
        self.failure = asyncio.CancelledError() if task.cancelled() else task.exception() or RuntimeError("it returned")
        logger.critical("an engine task has died; its model answers nothing any more: %r", self.failure)
        self._observer.failed()
        for future in self._submitted:
            if not future.done():
                future.set_exception(EngineFailed())

    async def stop(self) -> None:
        """Refuse new requests and return when all that waits is computed."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._thread.shutdown(wait=self.failure is None)

    async def submit(
        self, operation: str, queries: Sequence[Query], deadline: float, urgency: int = DEFAULT_URGENCY
    ) -> tuple[list[Any], Timing]:
        """Return the results of the queries in order.

        `deadline` is on the clock of `time.monotonic`, `urgency` 0 is the greatest. Only queries of one operation are
        computed together.

        Raises `QueueFull` at once where there is no room, `DeadlineExceeded` at the deadline, `Stopped`,
        `EngineFailed`, and what the operation raises. A call that is cancelled or expires takes its queries out of the
        queue, and out of a running decoding at its next step; a batch that holds them is finished for the others.
        """
        self.admit(len(queries), deadline)
        entries = self._entries(operation, queries, deadline, urgency)
        futures = [entry.payload.future for entry in entries]
        self._push(entries)
        self._submitted.update(futures)
        self._wake.set()
        timer = asyncio.timeout(deadline - time.monotonic())
        try:
            async with timer:
                answers = [await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures)
        except BaseException:
            expired = timer.expired()
            self._give_up(entries, "expired" if expired else "cancelled")
            if expired:
                raise DeadlineExceeded from None
            raise
        finally:
            self._submitted.difference_update(futures)
        timing = Timing(
            max((timing.queue for _, timing in answers), default=0.0),
            max((timing.inference for _, timing in answers), default=0.0),
            max((timing.batch for _, timing in answers), default=0),
        )
        return [result for result, _ in answers], timing

    def _entries(self, operation: str, queries: Sequence[Query], deadline: float, urgency: int) -> list[Entry[Waiting]]:
        loop, now = asyncio.get_running_loop(), time.monotonic()
        context = self._tracer.context() if self._tracer else None
        return [
            Entry(
                operation=self._group(operation, query),
                length=query.length,
                result_items=query.result_items,
                weight=self._weight(query),
                arrived=now,
                deadline=deadline,
                urgency=urgency,
                payload=Waiting(query, loop.create_future(), context),
            )
            for query in queries
        ]

    def _group(self, operation: str, query: Query) -> str:
        """Return what the queries of one batch must have in common."""
        return operation

    def _weight(self, query: Query) -> float:
        """Return the work for each token of a query, compared with other queries."""
        return 1.0

    def _give_up(self, entries: Sequence[Entry[Waiting]], reason: str) -> None:
        """Take the entries of a request out of the queue; nothing waits for their results any more."""
        if cancelled := sum(entry.payload.future.cancelled() for entry in entries):
            self._observer.rejected(reason, cancelled)
        for entry in entries:
            entry.payload.future.cancel()
        self._queue.remove(entries)
        self._report_queue()

    def admit(self, items: int, deadline: float = math.inf, cost: int = 0) -> None:
        """Raise `QueueFull` where so many queries have no room, or are not expected to be computed by their deadline.

        `cost` is an estimate of their own, in tokens. `submit` calls it too; a caller that does so before it makes the
        queries saves that work. Raises `Stopped` and `EngineFailed` where nothing is accepted any more.
        """
        if self.failure is not None:
            raise EngineFailed
        if self._stopping:
            raise Stopped
        never = items > self.limits.max_queue_items
        if never or len(self._queue) + self._preparing + items > self.limits.max_queue_items:
            self._refuse(items, never=never)
        if self._drain.seconds(self._queue.cost) > self.limits.max_wait:
            self._refuse(items)
        before = self._queue.cost + self._computing
        if before and self._drain.seconds(before + cost) > _MARGIN * (deadline - time.monotonic()):
            self._refuse(items)

    def _refuse(self, items: int, *, never: bool = False) -> NoReturn:
        self._observer.rejected("overloaded", items)
        raise QueueFull(never=never, retry_after=self._drain.seconds(self._queue.cost))

    @contextlib.contextmanager
    def preparing(self, items: int, deadline: float, cost: int = 0) -> Iterator[None]:
        """Admit queries that are still to be made, and count them as if they waited; raises what `admit` raises."""
        self.admit(items, deadline, cost)
        self._preparing += items
        try:
            yield
        finally:
            self._preparing -= items

    def _push(self, entries: Sequence[Entry[Waiting]]) -> None:
        try:
            self._queue.push(entries)
        except QueueFull as error:
            self._observer.rejected("overloaded", len(entries))
            raise QueueFull(never=error.never, retry_after=self._drain.seconds(self._queue.cost)) from error
        self._report_queue()

    def _report_queue(self) -> None:
        self._observer.queued(len(self._queue), self._queue.tokens)

    @abc.abstractmethod
    async def _run(self) -> None:
        """Compute queued entries until the queue is empty and `stop` was called."""

    async def _sleep(self) -> bool:
        """Wait for a request; return False where none came and none will."""
        if self._stopping:
            return False
        self._wake.clear()
        await self._wake.wait()
        return True

    def _drop_expired(self) -> None:
        """Fail the entries that have waited in the queue beyond their deadline."""
        expired = self._queue.expired(time.monotonic())
        if expired:
            self._observer.rejected("expired", len(expired))
            self._report_queue()
        for entry in expired:
            fail(entry, DeadlineExceeded())


def fail(entry: Entry[Waiting], error: Exception) -> None:
    """Set the error of an entry whose result is still awaited."""
    if not entry.payload.future.done():
        entry.payload.future.set_exception(error)


def succeed(entry: Entry[Waiting], result: object, timing: Timing) -> None:
    """Set the result of an entry whose result is still awaited."""
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
            cost = sum(entry.cost for entry in batch)
            self._computing += cost
            task = asyncio.create_task(self._compute(batch, operations))
            self._running.add(task)
            task.add_done_callback(functools.partial(self._computed, operations, cost))
        if self._running:
            await asyncio.wait(self._running)

    def _computed(self, operations: Mapping[str, Operation], cost: int, task: "asyncio.Task[bool]") -> None:
        self._running.discard(task)
        self._computing -= cost
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
        """Run one batch; return whether it succeeded. An error is set on the requests of this batch only."""
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
        self._drain.record(sum(entry.cost for entry in batch), seconds / len(self._running))
        waits = [started - entry.arrived for entry in batch]
        for entry, result, wait in zip(batch, results, waits, strict=True):
            succeed(entry, result, Timing(wait, seconds, number))
        lengths = [entry.length for entry in batch]
        self._observer.batch(lengths, waits)
        self._observer.computed(seconds)
        if self._tracer is not None:
            self._tracer.batch(number, lengths, [entry.payload.trace for entry in batch], seconds)
        return True
