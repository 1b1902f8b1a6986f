"""Dynamic batching: queued requests are computed in batches, several of them concurrently."""

import asyncio
import functools
import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from models.native import native_errors
from models.tasks.model import BatchFunction
from service.engine.batcher import PAUSE, Batcher, Observer, Timing, Tracer, Work
from service.engine.computations import TOOK_TOO_LONG, Computations
from service.engine.cost_model import UNMEASURED, CostModel, Sample
from service.engine.patience import WORTH_WAITING
from service.engine.queue import Entry, Limits
from service.engine.waiting import Waiting, awaited

__all__ = ["DynamicBatcher"]

logger = logging.getLogger("softserve")


@dataclass(eq=False, slots=True)
class _Replica:
    """A device that holds the model."""

    functions: Mapping[str, BatchFunction]
    costs: Mapping[str, CostModel]
    running: int = 0
    """Batches that it computes now."""


class DynamicBatcher(Batcher):
    """Computes batches, one or several concurrently, on one or several devices."""

    def __init__(
        self,
        devices: Sequence[Mapping[str, BatchFunction]],
        limits: Limits,
        observer: Observer,
        *,
        costs: Sequence[Mapping[str, CostModel]] = (),
        parallel_batches: int = 1,
        alone: Collection[str] = (),
        tracer: Tracer | None = None,
        computations: Computations | None = None,
        background: bool = False,
    ) -> None:
        """`devices` holds the batch functions of each replica, which computes up to `parallel_batches` concurrently, of
        those that are `alone` one: what arrives meanwhile waits for the next batch.

        `costs` holds the measured costs of the functions of each replica, by which batches are formed and requests
        admitted; without them a batch costs as in `limits`.
        """
        threads, expected = parallel_batches * len(devices), 1.0 if costs else 0.0
        super().__init__(
            limits,
            observer,
            threads=threads,
            tracer=tracer,
            expected=expected,
            computations=computations,
            background=background,
        )
        checked = native_errors("the model")
        self._replicas = [
            _Replica({name: checked(function) for name, function in functions.items()}, measured)
            for functions, measured in zip(devices, costs or [{}] * len(devices), strict=True)
        ]
        self._free: asyncio.Queue[_Replica] = asyncio.Queue()
        for replica in self._replicas * parallel_batches:
            self._free.put_nowait(replica)
        self._running: set[asyncio.Task[bool]] = set()
        self._alone = dict.fromkeys(alone, 0)
        """Functions of which each replica computes one batch at a time, and the number of those that run."""

    def _estimated_cost(self, operation: str, items: int, tokens: float) -> float:
        """Return the seconds of so many parts in full batches, spread over the replicas."""
        costs = self._replicas[0].costs
        terms = costs[operation].terms if operation in costs else UNMEASURED
        batches = max(items / self.limits.max_batch_items, tokens / self.limits.max_batch_tokens)
        return (batches * terms.fixed + items * terms.item + tokens * terms.token) / len(self._replicas)

    def unloaded_seconds(self, operation: str, work: Work) -> float:
        cost = self._replicas[0].costs.get(operation)
        if cost is None or cost.unloaded is None:
            return 0.0
        full = max(work.items / self.limits.max_batch_items, work.tokens / self.limits.max_batch_tokens)
        batches, terms = max(1, math.ceil(full)), cost.unloaded
        seconds = batches * terms.fixed + work.items * terms.item + work.tokens * terms.token
        return seconds / min(batches, len(self._replicas))

    async def _run(self) -> None:
        while await self._has_batch():
            replica = await self._free.get()
            self._drop_expired()
            batch = self._next_batch(replica)
            if not batch:  # all of it was cancelled or expired meanwhile
                self._free.put_nowait(replica)
                continue
            cost = sum(entry.cost for entry in batch)
            self._computing += cost
            replica.running += 1
            self._count_alone(batch[0].batch_key, 1)
            task = asyncio.create_task(self._compute(batch, replica))
            self._running.add(task)
            task.add_done_callback(functools.partial(self._computed, replica, cost, batch[0].batch_key))
        if self._running:
            await asyncio.wait(self._running)

    def _next_batch(self, replica: _Replica) -> list[Entry[Waiting]]:
        """Take the next batch for a replica out of the queue."""
        now = time.monotonic()
        head = self._queue.head(now) if self._queue.ready else None
        if head is not None and head.batch_key in replica.costs:
            cost = replica.costs[head.batch_key]
            seconds = cost.terms.fixed if cost.batch_cost >= WORTH_WAITING else 0.0
            batch_cost, limits = cost.batch_cost, self._queue.limits
            if (limits.batch_cost, limits.batch_seconds) != (batch_cost, seconds):
                self._queue.limits = replace(self.limits, batch_cost=batch_cost, batch_seconds=seconds)
        return self._queue.next_batch(now)

    def _count_alone(self, function: str, change: int) -> None:
        """Count the batches of a function that is computed alone; as many as there are replicas run at most."""
        if function not in self._alone:
            return
        self._alone[function] += change
        if change > 0 and self._alone[function] == len(self._replicas):
            self._queue.hold(function)
        elif change < 0 and self._alone[function] == len(self._replicas) - 1:
            self._queue.resume(function)
            self._wake.set()

    def _computed(self, replica: _Replica, cost: float, function: str, task: "asyncio.Task[bool]") -> None:
        self._running.discard(task)
        self._count_alone(function, -1)
        replica.running -= 1
        self._computing -= cost
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("an error after a batch was computed: %r", error)
        if len(self._replicas) > 1 and not task.cancelled() and error is None and not task.result():
            task.get_loop().call_later(PAUSE, self._free.put_nowait, replica)
        else:
            self._free.put_nowait(replica)

    async def _has_batch(self) -> bool:
        """Wait until a batch is due; return False once the batcher stops and the queue is empty."""
        while True:
            self._drop_expired()
            ready = self._queue.ready_at()
            if ready is None and len(self._queue):  # the rest waits for a batch that runs
                self._wake.clear()
                await self._wake.wait()
            elif ready is None:
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

    async def _compute(self, batch: Sequence[Entry[Waiting]], replica: _Replica) -> bool:
        """Run one batch; return False where it failed. An error is set on the requests of this batch only."""
        self._report_queue()
        self._batches += 1
        number, started, parts = self._batches, time.monotonic(), [entry.payload.part for entry in batch]
        try:
            function = replica.functions[batch[0].batch_key]
            outputs = await self.computations.run(self._thread, function, parts, awaited=lambda: awaited(batch))
            if len(outputs) != len(batch):
                raise ValueError(f"{batch[0].batch_key} returned {len(outputs)} results for {len(batch)} queries")
        except Exception as error:
            for entry in batch:
                entry.payload.fail(error)
            if not isinstance(error, TOOK_TOO_LONG):
                return False  # the device may be broken
            self._drain.record(0, (time.monotonic() - started) / len(self._running))
            return True
        finally:
            self._queue.completed(time.monotonic(), batch)
        seconds = time.monotonic() - started
        self._drain.record(sum(entry.cost for entry in batch), seconds / len(self._running))
        if batch[0].batch_key in replica.costs:
            longest = max(entry.length for entry in batch)
            replica.costs[batch[0].batch_key].record(Sample(len(batch), longest, seconds / replica.running))
        waits = [started - entry.arrived for entry in batch]
        for entry, output, wait in zip(batch, outputs, waits, strict=True):
            entry.payload.succeed(output, Timing(wait, seconds, number))
        lengths = [entry.length for entry in batch]
        self._observer.batch(lengths, waits)
        self._observer.computed(seconds)
        if self._tracer is not None:
            self._tracer.batch(number, lengths, [entry.payload.trace for entry in batch], seconds)
        return True
