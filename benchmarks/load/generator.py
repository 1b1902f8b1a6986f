"""The load generator: requests to a server in a closed or an open loop, and their outcome."""

import asyncio
import contextlib
import json
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from benchmarks.load.client import Client, Response, TransportError
from benchmarks.load.options import LoadOptions
from service.http.requests import TIMEOUT_HEADER

__all__ = ["LoadTest", "Outcome", "RequestSource"]

T = TypeVar("T")

_GRACE = 1.0
"""Seconds after a request's deadline until it counts as failed; a server answers 504 within them."""
_PAUSE = 0.1
"""Seconds that a connection of the closed loop waits after a failure, to bound the rate of failures."""
_POLL = 0.2
"""Longest sleep of the open loop, in seconds, before it checks whether it has ended."""


class RequestSource(Protocol):
    """The requests of a load test, such as a `Workload`."""

    @property
    def path(self) -> str:
        """The endpoint."""

    def body(self) -> bytes:
        """Return the body of the next request."""

    def error_in(self, content: bytes) -> str | None:
        """Return the error in the body of a response of status 200; None where it is correct."""


@dataclass
class Outcome:
    """The responses and failures of the requests that were due in the measured time; times in seconds."""

    seconds: float = 0.0
    """Duration of the measurement."""
    requests: int = 0
    answered: list[float] = field(default_factory=list)
    """Latency of each correct response, from when its request was due."""
    refused: list[float] = field(default_factory=list)
    """Latency of each response of status 429."""
    retry_after: Counter[str] = field(default_factory=Counter)
    """Values of `Retry-After` in responses of status 429."""
    statuses: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """Requests without a response and incorrect responses, by kind."""
    details: dict[int, str] = field(default_factory=dict)
    """Error message of the first response of each status other than 2xx and 429."""
    in_time: int = 0
    """Correct responses received within the measured time, whenever their requests were due: the throughput."""
    after: int = 0
    """Correct responses received after the measured time."""
    late: list[float] = field(default_factory=list)
    """Delay from when a request was due until the client sent it; more than milliseconds mean a slow client."""
    processor_seconds: float = 0.0
    """Processor time of the client in the measured time."""

    @property
    def good(self) -> bool:
        """Whether every request got a response of status 2xx or 429; False without requests."""
        fine = all(status // 100 == 2 or status == 429 for status in self.statuses)
        return self.requests > 0 and fine and not self.failures


class LoadTest:
    """A load test, which runs once; `stop` ends it early."""

    def __init__(self, client: Client, workload: RequestSource, options: LoadOptions) -> None:
        self.outcome = Outcome()
        self._client, self._workload, self._options = client, workload, options
        self._headers = {TIMEOUT_HEADER: str(options.timeout_ms)}
        self._timeout = options.timeout_ms / 1000 + _GRACE
        self._start = self._end = math.inf
        self._stopped = asyncio.Event()

    @property
    def stopped(self) -> bool:
        """Whether the load test was ended early."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Cancel the requests in flight, which then do not count, and end the load test."""
        self._stopped.set()

    async def run(self, before: Callable[[], Awaitable[T]]) -> T:
        """Warm up, await `before`, measure, and wait for the responses to all due requests.

        Returns the result of `before`.
        """
        outcome, options = self.outcome, self._options
        tasks: list[asyncio.Task[object]] = [asyncio.create_task(self._stopped.wait())]
        try:
            if options.warm_up:
                tasks.append(asyncio.create_task(self._send()))
                await _first_of(tasks, options.warm_up)
            found = await before()
            if not self.stopped:
                self._start, busy = time.perf_counter(), time.process_time()
                self._end = self._start + options.seconds
                if not options.warm_up:
                    tasks.append(asyncio.create_task(self._send()))
                await _first_of(tasks, options.seconds)
                self._end = min(self._end, time.perf_counter())
                outcome.seconds = self._end - self._start
                outcome.processor_seconds = time.process_time() - busy
                await _first_of(tasks)
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        return found

    async def _send(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._options.rate is not None:
                await self._open_loop(group, self._options.rate)
                return
            for _ in range(self._options.most_connections()):
                group.create_task(self._closed_loop())

    async def _closed_loop(self) -> None:
        while (now := time.perf_counter()) < self._end:
            if not await self._send_one(now):
                await asyncio.sleep(_PAUSE)

    async def _open_loop(self, group: asyncio.TaskGroup, rate: float) -> None:
        generator = random.Random(0)
        due = time.perf_counter() + generator.expovariate(rate)
        while (now := time.perf_counter()) < self._end or due < self._end:
            while due <= min(now, self._end):
                group.create_task(self._send_one(due))
                due += generator.expovariate(rate)
            await asyncio.sleep(max(0.0, min(due, self._end, now + _POLL) - now))

    async def _send_one(self, due: float) -> bool:
        """Send one request; return whether there was a response."""
        began = time.perf_counter()
        seconds = due + self._timeout - began
        try:
            response = await self._client.post(self._workload.path, self._workload.body(), self._headers, seconds)
        except TransportError as error:
            if due >= self._start:
                self.outcome.requests += 1
                self.outcome.failures[str(error)] += 1
            return False
        self._record(response, due, began, time.perf_counter())
        return True

    def _record(self, response: Response, due: float, began: float, ended: float) -> None:
        outcome = self.outcome
        error = self._workload.error_in(response.content) if response.status == 200 else None
        correct = response.status // 100 == 2 and error is None
        if correct and self._start <= ended <= self._end:
            outcome.in_time += 1
        if due < self._start:
            return
        outcome.late.append(began - due)
        outcome.statuses[response.status] += 1
        if correct:
            outcome.answered.append(ended - due)
            outcome.after += ended > self._end
        elif error is not None:
            outcome.failures[error] += 1
        elif response.status == 429:
            outcome.refused.append(ended - due)
            outcome.retry_after[response.retry_after or "none"] += 1
        elif response.status not in outcome.details:
            outcome.details[response.status] = _detail(response.content)
        outcome.requests += 1


async def _first_of(tasks: Iterable["asyncio.Task[object]"], seconds: float | None = None) -> None:
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


def _detail(content: bytes) -> str:
    """Return the detail of a problem (RFC 9457), or else the beginning of the body."""
    try:
        said = json.loads(content)["detail"]
    except (ValueError, KeyError, TypeError):
        said = content.decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in str(said)).split())[:200]
