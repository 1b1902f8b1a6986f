"""The base of the batchers: one queue, an executor, and an asyncio task that connects them."""

import abc
import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol, Self

from models.tasks.model import Part
from service.engine.allowance import MARGIN, SHORT_DEADLINE, too_short
from service.engine.caller import Timing
from service.engine.computations import Computations, ModelStuck
from service.engine.drain import DrainRate
from service.engine.fairness import SINGLE_FLOW, Flow
from service.engine.priority import BACKGROUND, lower_thread_priority
from service.engine.queue import DEFAULT_URGENCY, BatchQueue, Entry, Limits, QueueFull
from service.engine.waiting import Outputs, Waiting

__all__ = [
    "PAUSE",
    "Batcher",
    "DeadlineExceeded",
    "EngineFailed",
    "Observer",
    "Stopped",
    "Timing",
    "Tracer",
    "Work",
]

logger = logging.getLogger("softserve")


class DeadlineExceeded(Exception):
    """A request whose deadline passed before its result was computed.

    `preparing` says that it passed while the inputs of the request were prepared, which did not wait for others.
    """

    def __init__(self, *, preparing: bool = False) -> None:
        super().__init__()
        self.preparing = preparing


class Stopped(Exception):
    """A request that arrived while the batcher stops."""


class EngineFailed(Exception):
    """A request to a model whose engine task has ended by an error; the model must be loaded again."""


class Work(NamedTuple):
    """An amount of parts to compute."""

    items: float
    tokens: float
    """Tokens of all parts."""
    longest: float
    """Tokens of the longest part."""

    @classmethod
    def estimated(cls, items: int, tokens: float) -> Self:
        """Return the work of so many parts of similar lengths."""
        return cls(items, tokens, tokens / max(1, items))


class Observer(Protocol):
    """Receives the events of a batcher; see `service.observability.metrics`."""

    def queued(self, items: int, tokens: int) -> None: ...
    def batch(self, lengths: Sequence[int], waits: Sequence[float]) -> None: ...
    def computed(self, seconds: float) -> None: ...
    def rejected(self, reason: str, items: int) -> None: ...
    def generated(self, tokens: int) -> None: ...
    def failed(self) -> None: ...


class Tracer(Protocol):
    """Links batches to the spans of their requests; see `service.observability.tracing`."""

    def context(self) -> Any: ...
    def batch(self, number: int, lengths: Sequence[int], requests: Sequence[Any], seconds: float) -> None: ...


_OVERLOADED = "overloaded"
"""Reason of a refusal."""
PAUSE = 1.0
"""Seconds for which a device is left idle after a failure, where there are others: a broken one fails fast, and would
take every batch."""
_ITEMS_PER_TOKEN = 64
"""Result items whose objects and JSON take as long as a token takes in a model."""


class Batcher(abc.ABC):
    """Queues the concurrent requests of one model and computes them together. Use from one event loop."""

    def __init__(
        self,
        limits: Limits,
        observer: Observer,
        *,
        threads: int = 1,
        tracer: Tracer | None = None,
        expected: float = 0.0,
        computations: Computations | None = None,
        background: bool = False,
    ) -> None:
        """`expected` is the measured time of one unit of cost, in seconds; 0 where nothing was measured.

        Threads of the lowest priority compute where it is in the `background`.
        """
        self.limits = limits
        self.computations = computations or Computations()
        self.computations.on_stuck = self._fail_stuck
        self._tracer = tracer
        self._queue: BatchQueue[Waiting] = BatchQueue(limits)
        self._observer = observer
        self._drain = DrainRate(expected)
        self._batches = 0
        self._wake = asyncio.Event()
        self._stopping = False
        self._preparing: dict[str, int] = {}
        """Queries of each flow that are being prepared."""
        self._preparing_all = 0
        self._computing = 0.0
        """Cost of the entries that are being computed."""
        self._submitted: set[Outputs] = set()
        lower = partial(lower_thread_priority, BACKGROUND) if background else lower_thread_priority
        self._thread = ThreadPoolExecutor(threads, "softserve-model", initializer=lower)
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        """The error that ended the engine task, after which nothing is computed any more."""
        self.admitted = self.refused = 0
        """Parts of requests, since the start."""

    @property
    def expected_wait(self) -> float:
        """Seconds that all that is queued and being computed is expected to take."""
        return self._drain.seconds(self._queue.cost + self._computing)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued, prepared or computed."""
        return not self._submitted and not self._preparing

    @property
    def working(self) -> bool:
        """Whether requests are computed: no engine task has died, and every computation returns."""
        return self.failure is None and not self.computations.stuck

    def start(self) -> None:
        """Start the engine task on the running event loop."""
        self._watch = asyncio.create_task(self.computations.watch())
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Fail everything that is pending where the engine task did not end by `stop`."""
        if self._stopping and not task.cancelled() and task.exception() is None:
            return
        self.failure = asyncio.CancelledError() if task.cancelled() else task.exception() or RuntimeError("it returned")
        logger.critical("an engine task has died; its model answers nothing any more: %r", self.failure)
        self._observer.failed()
        self._fail_submitted(EngineFailed())

    def _fail_stuck(self) -> None:
        """Fail everything that is pending where a computation does not return."""
        self._fail_submitted(ModelStuck())

    def _fail_submitted(self, error: Exception) -> None:
        for outputs in self._submitted:
            outputs.fail(error)

    async def stop(self) -> None:
        """Refuse new requests, and return when all queued ones are computed."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._watch is not None:
            self._watch.cancel()
        self._thread.shutdown(wait=self.working)

    async def submit(
        self,
        operation: str,
        parts: Sequence[Part],
        deadline: float,
        urgency: int = DEFAULT_URGENCY,
        flow: Flow = SINGLE_FLOW,
    ) -> tuple[list[Any], Timing]:
        """Return the outputs of the parts of a request, in order.

        `deadline` is on the clock of `time.monotonic`, `urgency` 0 is the greatest. Only parts of one operation share a
        batch. Requests of several flows are computed in turns.

        Raises `QueueFull` at once where there is no room, `DeadlineExceeded` at the deadline, `Stopped`,
        `EngineFailed`, `ModelStuck`, `ComputationTimeout` and errors of the operation. A call that is cancelled or
        expires removes its parts from the queue, and from a running decoding at its next step; a batch that holds them
        is finished for the others, and interrupted where there are none.
        """
        unloaded = partial(self._unloaded_seconds_of, operation, parts)
        self.admit(len(parts), deadline, unloaded=unloaded, flow=flow)
        loop = asyncio.get_running_loop()
        outputs = Outputs(len(parts), loop)
        entries = self._entries(operation, parts, outputs, deadline, urgency, flow)
        self._push(entries)
        self.admitted += len(parts)
        self._submitted.add(outputs)
        self._wake.set()
        timer = loop.call_later(max(0.0, deadline - time.monotonic()), self._expire, outputs, entries)
        try:
            return list(await outputs.all()), outputs.timing
        except BaseException as error:
            self._give_up(outputs, entries, cancelled=isinstance(error, asyncio.CancelledError))
            raise
        finally:
            timer.cancel()
            self._submitted.discard(outputs)

    def _unloaded_seconds_of(self, operation: str, parts: Sequence[Part]) -> float:
        return self.unloaded_seconds(operation, self.work_of(parts))

    def _entries(
        self, operation: str, parts: Sequence[Part], outputs: Outputs, deadline: float, urgency: int, flow: Flow
    ) -> list[Entry[Waiting]]:
        now, context = time.monotonic(), self._tracer.context() if self._tracer else None
        costs = self._costs(operation, parts)
        return [
            Entry(
                batch_key=self._batch_key(operation, part),
                length=part.length,
                cost=costs[place],
                arrived=now,
                deadline=deadline,
                urgency=urgency,
                flow=flow,
                payload=Waiting(part, outputs, place, context),
            )
            for place, part in enumerate(parts)
        ]

    def _batch_key(self, operation: str, part: Part) -> str:
        """Return what all parts of one batch have in common."""
        return operation

    def _costs(self, operation: str, parts: Sequence[Part]) -> list[float]:
        """Return the expected cost of computing and answering each part."""
        tokens = [part.length + part.result_items / _ITEMS_PER_TOKEN for part in parts]
        # Most parts of a request are as long as others of it.
        costs = {each: self._estimated_cost(operation, 1, each) for each in set(tokens)}
        return [costs[each] for each in tokens]

    def _estimated_cost(self, operation: str, items: int, tokens: float) -> float:
        """Return the expected cost of so many parts that have so many tokens together."""
        return tokens

    def work_of(self, parts: Sequence[Part]) -> Work:
        """Return how much is to be computed for parts."""
        lengths = [part.length for part in parts]
        return Work(len(lengths), sum(lengths), max(lengths, default=0))

    def unloaded_seconds(self, operation: str, work: Work) -> float:
        """Return how long work takes while nothing else is computed, as the warm-up has measured; 0 without one."""
        del operation, work
        return 0.0

    def _count_expired(self, entries: Sequence[Entry[Waiting]]) -> None:
        """Count entries whose deadline has passed, those apart that had too little time from the start."""
        short = sum(
            too_short(
                entry.deadline - entry.arrived,
                self.unloaded_seconds(entry.batch_key, self.work_of([entry.payload.part])),
            )
            for entry in entries
        )
        for reason, items in ((SHORT_DEADLINE, short), ("expired", len(entries) - short)):
            if items:
                self._observer.rejected(reason, items)

    def _expire(self, outputs: Outputs, entries: Sequence[Entry[Waiting]]) -> None:
        """End a request whose deadline has passed."""
        if not outputs.ended:
            self._count_expired([entry for entry in entries if entry.payload.awaited])
            outputs.fail(DeadlineExceeded())

    def _give_up(self, outputs: Outputs, entries: Sequence[Entry[Waiting]], *, cancelled: bool) -> None:
        """Remove the entries of a request whose outputs are no longer awaited from the queue."""
        if cancelled and outputs.left:
            self._observer.rejected("cancelled", outputs.left)
        outputs.give_up()
        self._queue.remove(entries)
        self._report_queue()

    def admit(
        self,
        items: int,
        deadline: float = math.inf,
        cost: float = 0.0,
        unloaded: Callable[[], float] = float,
        flow: Flow = SINGLE_FLOW,
    ) -> None:
        """Raise `QueueFull` where so many queries have no room, or are not expected to be computed by their deadline.

        `cost` is an estimate of their own; `unloaded` returns one of the seconds that they take while nothing else is
        computed. Entries of other flows than `flow` count as far as they are computed before them.
        `submit` calls this method too; a caller that calls it before it makes the queries saves that work. Raises
        `Stopped`, `EngineFailed` and `ModelStuck` where nothing is accepted.
        """
        self.computations.require_working()
        if self.failure is not None:
            raise EngineFailed
        if self._stopping:
            raise Stopped
        if items > self.limits.max_queue_items:
            self._refuse(items, never=True)
        preparing = self._preparing.get(flow.name, 0)
        if not self._queue.has_room(flow, items + preparing, self._preparing_all - preparing):
            self._refuse(items, flow=flow)
        left = deadline - time.monotonic()
        most = min(self.limits.max_wait, MARGIN * left)
        if self._drain.seconds(self._queue.cost + self._computing + cost) <= most:  # also after all other flows
            return
        if self._expected_wait(flow) > self.limits.max_wait:
            self._refuse(items, flow=flow)
        before = self._queue.cost_before(flow, cost) + self._computing + cost
        if self._submitted and self._drain.seconds(before) > MARGIN * left:
            reason = SHORT_DEADLINE if too_short(left, unloaded()) else _OVERLOADED
            self._refuse(items, reason=reason, flow=flow)

    def _expected_wait(self, flow: Flow) -> float:
        """Return the seconds in which the waiting entries of a flow are expected to be computed."""
        return self._drain.seconds(self._queue.cost_before(flow))

    def _refuse(
        self, items: int, *, never: bool = False, reason: str = _OVERLOADED, flow: Flow = SINGLE_FLOW
    ) -> NoReturn:
        self._count_refused(items, reason)
        raise QueueFull(never=never, retry_after=self._expected_wait(flow), limits=self.limits)

    def _count_refused(self, items: int, reason: str = _OVERLOADED) -> None:
        self.refused += items
        self._observer.rejected(reason, items)

    @contextlib.contextmanager
    def preparing(
        self, operation: str, items: int, deadline: float, tokens: float = 0.0, flow: Flow = SINGLE_FLOW
    ) -> Iterator[None]:
        """Admit queries that are still to be made, and count them as queued; raises the errors of `admit`.

        `tokens` is an estimate of their number of tokens.
        """
        cost = self._estimated_cost(operation, items, tokens)
        unloaded = partial(self.unloaded_seconds, operation, Work.estimated(items, tokens))
        self.admit(items, deadline, cost, unloaded, flow)
        self._preparing[flow.name] = self._preparing.get(flow.name, 0) + items
        self._preparing_all += items
        try:
            yield
        finally:
            self._preparing_all -= items
            if (left := self._preparing.pop(flow.name) - items) > 0:
                self._preparing[flow.name] = left

    def _push(self, entries: Sequence[Entry[Waiting]]) -> None:
        try:
            dropped = self._queue.push(entries)
        except QueueFull as error:
            self._count_refused(len(entries))
            seconds = self._expected_wait(entries[0].flow)
            raise QueueFull(never=error.never, retry_after=seconds, limits=self.limits) from error
        for each in dropped:
            self._count_refused(1)
            seconds = self._expected_wait(each.flow)
            each.payload.fail(QueueFull(never=False, retry_after=seconds, limits=self.limits))
        self._report_queue()

    def _report_queue(self) -> None:
        self._observer.queued(len(self._queue), self._queue.tokens)

    @abc.abstractmethod
    async def _run(self) -> None:
        """Compute queued entries until the queue is empty and `stop` was called."""

    async def _sleep(self) -> bool:
        """Wait for a request; return False once the batcher stops."""
        if self._stopping:
            return False
        self._wake.clear()
        await self._wake.wait()
        return True

    def _drop_expired(self) -> None:
        """Fail the queued entries whose deadline has passed."""
        expired = self._queue.expired(time.monotonic())
        if expired:
            self._count_expired([entry for entry in expired if entry.payload.awaited])  # others `_expire` has counted
            self._report_queue()
        for entry in expired:
            entry.payload.fail(DeadlineExceeded())
