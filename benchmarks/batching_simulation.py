"""A discrete-event simulation of one device that computes batches: traces of arrivals, policies, cost models.

Times are in seconds. Nothing here depends on the speed of the machine that simulates.
"""

import heapq
import itertools
import math
import random
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.shape_buckets import Buckets, Shape
from service.engine.patience import WORTH_WAITING
from service.engine.queue import BatchQueue, Entry, Limits

__all__ = [
    "Arrivals",
    "Bounds",
    "Cost",
    "CostModel",
    "Device",
    "Ours",
    "Policy",
    "Request",
    "Result",
    "ShapedCost",
    "TokenBudget",
    "simulate",
]
__all__ += ["FixedDelay", "backlog", "bursts", "closed_loop", "poisson"]

Request = Entry[int]
"""A text that waits; its payload is the number of its client, -1 without one."""

_DEADLINE = 30.0
"""Deadline of each request: the default of the service."""


class Cost(Protocol):
    """The time of a batch."""

    def seconds(self, batch: Sequence[Request]) -> float: ...


@dataclass(frozen=True)
class CostModel:
    """Seconds of a batch: `fixed + per_item * count + per_token * count * longest`."""

    fixed: float
    per_item: float
    per_token: float

    def of(self, items: int, longest: int) -> float:
        """Return the time of a batch of so many texts, padded to so many tokens."""
        return self.fixed + items * (self.per_item + self.per_token * longest)

    def seconds(self, batch: Sequence[Request]) -> float:
        """Return the time that a batch takes."""
        return self.of(*shape_of(batch))


class ShapedCost:
    """A cost of batches on a device that is slow at a shape which it has not computed before.

    With `buckets`, each batch is padded to one of them, and all of them have been warmed up.
    """

    def __init__(self, cost: CostModel, cold: float, buckets: Buckets | None = None) -> None:
        """`cold` is the time that the first batch of a shape takes in addition."""
        self._cost, self._cold, self._buckets = cost, cold, buckets
        self.shapes: Counter[Shape] = Counter()
        """The batches of each shape, before they were padded."""

    def seconds(self, batch: Sequence[Request]) -> float:
        """Return the time that a batch takes."""
        shape = shape_of(batch)
        first = not self.shapes[shape]
        self.shapes[shape] += 1
        if self._buckets is not None:
            return self._cost.of(*self._buckets.of(*shape))
        return self._cost.of(*shape) + (self._cold if first else 0.0)


def shape_of(batch: Sequence[Request]) -> Shape:
    """Return the number of texts and the tokens of the longest."""
    return len(batch), max(request.length for request in batch)


@dataclass(frozen=True)
class Bounds:
    """Largest batch, the same for all policies."""

    items: int
    tokens: int


@dataclass(frozen=True)
class Device:
    """A device that computes one batch at a time."""

    name: str
    cost: CostModel
    bounds: Bounds

    def capacity(self, lengths: Sequence[int]) -> float:
        """Return the texts/s of full batches of texts of equal length."""
        length = statistics.fmean(lengths)
        count = min(self.bounds.items, int(self.bounds.tokens / length))
        return count / (self.cost.fixed + count * (self.cost.per_item + self.cost.per_token * length))


class Policy(Protocol):
    """Decides when a free device starts a batch, and of which requests."""

    def push(self, requests: Sequence[Request]) -> None: ...
    def ready_at(self, free_since: float) -> float | None: ...
    def take(self, now: float) -> list[Request]: ...
    def completed(self, now: float, batch: Sequence[Request]) -> None: ...


class Ours:
    """The policy of the service."""

    def __init__(self, device: Device, max_delay: float = 0.0) -> None:
        cost, bounds = device.cost, device.bounds
        batch_cost = cost.fixed / cost.per_token
        self._queue: BatchQueue[int] = BatchQueue(
            Limits(
                max_batch_items=bounds.items,
                max_batch_tokens=bounds.tokens,
                batch_cost=batch_cost,
                max_delay=max_delay,
                starvation_limit=2.0,
                max_wait=math.inf,
                max_queue_items=1 << 30,
                max_queue_tokens=1 << 40,
                batch_seconds=cost.fixed if batch_cost >= WORTH_WAITING else 0.0,
            )
        )

    def push(self, requests: Sequence[Request]) -> None:
        self._queue.push(requests)

    def ready_at(self, free_since: float) -> float | None:
        return self._queue.ready_at()

    def take(self, now: float) -> list[Request]:
        return self._queue.next_batch(now)

    def completed(self, now: float, batch: Sequence[Request]) -> None:
        self._queue.completed(now, batch)


class _InOrder:
    """Requests in order of arrival, as many as a batch may hold."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._waiting: deque[Request] = deque()
        self._fitting, self._longest = 0, 0
        """How many of the oldest requests are known to fit in a batch, and the length of their longest."""

    def push(self, requests: Sequence[Request]) -> None:
        self._waiting += requests

    def completed(self, now: float, batch: Sequence[Request]) -> None:
        """Ignore it: the next batch depends on the waiting requests only."""

    def _count(self) -> int:
        """Return how many of the oldest requests fit in a batch, at least one."""
        for request in itertools.islice(self._waiting, self._fitting, self._bounds.items):
            longest, count = max(self._longest, request.length), self._fitting + 1
            if self._fitting and longest * count > self._bounds.tokens:
                break
            self._fitting, self._longest = count, longest
        return self._fitting

    def _pop(self, count: int) -> list[Request]:
        self._fitting = self._longest = 0
        return [self._waiting.popleft() for _ in range(count)]


class FixedDelay(_InOrder):
    """Batches in order of arrival that start once they are full, of a preferred size, or after a delay.

    The delay counts from the arrival of the oldest request (Triton's dynamic batcher), or with `from_free` from when
    the device was free and a request waited (LitServe).
    """

    def __init__(self, device: Device, delay: float, preferred: Sequence[int] = (), *, from_free: bool = False) -> None:
        super().__init__(device.bounds)
        self._delay, self._preferred, self._from_free = delay, preferred, from_free

    def ready_at(self, free_since: float) -> float | None:
        if not self._waiting:
            return None
        arrived = self._waiting[0].arrived
        if self._largest_preferred() or self._count() < len(self._waiting) or len(self._waiting) >= self._bounds.items:
            return arrived
        return self._delay + (max(arrived, free_since) if self._from_free else arrived)

    def take(self, now: float) -> list[Request]:
        overdue = now - self._waiting[0].arrived >= self._delay
        return self._pop((0 if overdue else self._largest_preferred()) or self._count())

    def _largest_preferred(self) -> int:
        if not self._preferred:
            return 0
        count = self._count()
        return max((size for size in self._preferred if size <= count), default=0)


class TokenBudget(_InOrder):
    """Batches in order of arrival up to a budget of padded tokens, without delay (text-embeddings-inference)."""

    def __init__(self, device: Device, tokens: int) -> None:
        super().__init__(Bounds(device.bounds.items, tokens))

    def ready_at(self, free_since: float) -> float | None:
        return self._waiting[0].arrived if self._waiting else None

    def take(self, now: float) -> list[Request]:
        return self._pop(self._count())


@dataclass(frozen=True)
class Arrivals:
    """A trace: when requests arrive and how long they are."""

    times: Sequence[tuple[float, int]]
    """Times of arrival, in order, and clients."""
    again: Callable[[], float] | None = None
    """The time from a client's result to its next request, in a closed loop."""


def poisson(rate: float, count: int, generator: random.Random) -> Arrivals:
    """Return a Poisson process of that many requests/s."""
    return Arrivals([(time, -1) for time in itertools.accumulate(generator.expovariate(rate) for _ in range(count))])


def bursts(rate: float, count: int, size: int, spread: float, generator: random.Random) -> Arrivals:
    """Return bursts at random times, of `size` requests each within `spread` seconds."""
    starts = itertools.accumulate(generator.expovariate(rate / size) for _ in range(count // size))
    return Arrivals(sorted((start + generator.uniform(0, spread), -1) for start in starts for _ in range(size)))


def backlog(count: int) -> Arrivals:
    """Return requests that all wait from the beginning."""
    return Arrivals([(0.0, -1)] * count)


def closed_loop(clients: int, generator: random.Random) -> Arrivals:
    """Return clients that each send the next request 0.2 to 1 ms after the last result."""

    def again() -> float:
        return generator.uniform(0.0002, 0.001)

    return Arrivals(sorted((again(), client) for client in range(clients)), again)


@dataclass(frozen=True)
class Result:
    """Throughput in texts/s, the median and the 99th percentile of latency in seconds, and texts per batch."""

    throughput: float
    p50: float
    p99: float
    batch: float


def simulate(
    policy: Policy, cost: Cost, arrivals: Arrivals, lengths: Sequence[int], *, transient: float = 0.0
) -> Result:
    """Return what the policy reaches on a trace; the n-th arrival has the n-th length. Stops after all lengths.

    The fraction `transient` of the answers does not count, of the first and of the last ones: a service runs longer
    than a simulation. It has learnt before what arrives, and does not wait for clients that have all stopped.
    """
    pending, sizes = list(arrivals.times), iter(lengths)
    answers: list[tuple[float, float]] = []
    now = free_since = 0.0
    batches = 0
    while True:
        _deliver(pending, now, policy, sizes)
        ready = policy.ready_at(free_since)
        if ready is None or ready > now:
            if ready is None and not pending:
                break
            now = min(time for time in (ready, pending[0][0] if pending else None) if time is not None)
            continue
        batch = policy.take(now)
        now = free_since = now + cost.seconds(batch)
        _deliver(pending, now, policy, sizes)
        policy.completed(now, batch)
        batches += 1
        answers += [(now, now - request.arrived) for request in batch]
        if arrivals.again is not None:
            for request in batch:
                heapq.heappush(pending, (now + arrivals.again(), request.payload))
    return _result(answers, int(transient * len(answers)), batches)


def _deliver(pending: list[tuple[float, int]], now: float, policy: Policy, lengths: Iterator[int]) -> None:
    """Push the requests that have arrived, as long as there are lengths."""
    while pending and pending[0][0] <= now:
        arrived, client = heapq.heappop(pending)
        if (length := next(lengths, None)) is not None:
            policy.push([_request(length, arrived, client)])


def _request(length: int, arrived: float, client: int) -> Request:
    return Entry(batch_key="classify", length=length, arrived=arrived, deadline=arrived + _DEADLINE, payload=client)


def _result(answers: Sequence[tuple[float, float]], uncounted: int, batches: int) -> Result:
    """Return the result of answers in their order: when each was given, and its latency."""
    counted = answers[uncounted : len(answers) - uncounted]
    started = answers[uncounted - 1][0] if uncounted else 0.0
    ordered = sorted(latency for _, latency in counted)
    p50, p99 = (ordered[int(fraction * (len(ordered) - 1))] for fraction in (0.5, 0.99))
    return Result(len(ordered) / (counted[-1][0] - started), p50, p99, len(answers) / batches)
