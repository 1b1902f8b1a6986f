"""Requests to a server for some seconds, in a closed or an open loop, and what became of them."""

import asyncio
import contextlib
import json
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from service.api.requests import TIMEOUT_HEADER
from service.bench.client import Answer, Client, TransportError
from service.bench.options import Load
from service.bench.workload import Workload

__all__ = ["LoadTest", "Outcome"]

_GRACE = 1.0
"""Seconds past a request's deadline after which the client gives up: a server that keeps it has answered 504."""
_PAUSE = 0.1
"""Seconds that a connection of the closed loop rests after a failure, lest it does nothing but fail."""
_LOOK = 0.2
"""Seconds after which the open loop looks whether it is over, where the next request is due later."""


@dataclass
class Outcome:
    """What became of the requests that were due in the measured time; times in seconds."""

    seconds: float = 0.0
    """The measured time."""
    requests: int = 0
    answered: list[float] = field(default_factory=list)
    """From when a request was due to the end of its right answer."""
    refused: list[float] = field(default_factory=list)
    """The same, for answers of status 429."""
    retry_after: Counter[str] = field(default_factory=Counter)
    """What these said in `Retry-After`."""
    statuses: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """Requests without an answer and wrong answers, by kind."""
    details: dict[int, str] = field(default_factory=dict)
    """What the first answer of each status other than 2xx and 429 said."""
    in_time: int = 0
    """Right answers that came within the measured time, whenever their requests were due: these are the throughput."""
    after: int = 0
    """Right answers that came after it."""
    late: list[float] = field(default_factory=list)
    """How long after it was due the client came to a request: what is more than milliseconds is its own slowness."""
    processor_seconds: float = 0.0
    """What the client took of the processor in the measured time."""

    @property
    def good(self) -> bool:
        """Whether every request was answered, and with 2xx or 429; False where there was none."""
        fine = all(status // 100 == 2 or status == 429 for status in self.statuses)
        return self.requests > 0 and fine and not self.failures


class LoadTest:
    """One run. `stop` ends it early."""

    def __init__(self, client: Client, workload: Workload, options: Load) -> None:
        self.outcome = Outcome()
        self._client, self._workload, self._options = client, workload, options
        self._headers = {TIMEOUT_HEADER: str(options.timeout_ms)}
        self._patience = options.timeout_ms / 1000 + _GRACE
        self._start = self._end = math.inf
        self._stopped = asyncio.Event()

    @property
    def stopped(self) -> bool:
        """Whether it was ended early."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Gives up what is under way, which then does not count."""
        self._stopped.set()

    async def run(self, before: Callable[[], Awaitable[None]]) -> None:
        """Warms up, awaits `before`, measures, and waits for the answers to what was due by then."""
        sender: asyncio.Task[None] | None = None
        try:
            if self._options.warm_up:
                sender = asyncio.create_task(self._send())
                await self._wait(self._options.warm_up)
            await before()
            if not self.stopped:
                self._start = time.perf_counter()
                self._end = self._start + self._options.seconds
                busy = time.process_time()
                sender = sender or asyncio.create_task(self._send())
                await self._wait(self._options.seconds)
                self._end = min(self._end, time.perf_counter())
                self.outcome.seconds = self._end - self._start
                self.outcome.processor_seconds = time.process_time() - busy
                stopping = asyncio.create_task(self._stopped.wait())
                await asyncio.wait((sender, stopping), return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
        finally:
            if sender is not None:
                await _end(sender)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    async def _send(self) -> None:
        await (self._closed_loop() if self._options.rate is None else self._open_loop(self._options.rate))

    async def _closed_loop(self) -> None:
        async def connection() -> None:
            while (now := time.perf_counter()) < self._end:
                if not await self._ask(now):
                    await asyncio.sleep(_PAUSE)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._options.most_connections()):
                group.create_task(connection())

    async def _open_loop(self, rate: float) -> None:
        generator = random.Random(0)
        due = time.perf_counter() + generator.expovariate(rate)
        async with asyncio.TaskGroup() as group:
            while (now := time.perf_counter()) < self._end or due < self._end:
                while due <= min(now, self._end):
                    group.create_task(self._ask(due))
                    due += generator.expovariate(rate)
                await asyncio.sleep(max(0.0, min(due, self._end, now + _LOOK) - now))

    async def _ask(self, due: float) -> bool:
        """One request; whether an answer came."""
        began = time.perf_counter()
        seconds = due + self._patience - began
        try:
            answer = await self._client.post(self._workload.path, self._workload.body(), self._headers, seconds)
        except TransportError as error:
            if due >= self._start:
                self.outcome.requests += 1
                self.outcome.failures[str(error)] += 1
            return False
        self._note(answer, due, began, time.perf_counter())
        return True

    def _note(self, answer: Answer, due: float, began: float, ended: float) -> None:
        outcome, counts = self.outcome, due >= self._start
        wrong = self._workload.wrong(answer.content) if answer.status == 200 else None
        right = answer.status // 100 == 2 and wrong is None
        if right and self._start <= ended <= self._end:
            outcome.in_time += 1
        if not counts:
            return
        outcome.requests += 1
        outcome.late.append(began - due)
        outcome.statuses[answer.status] += 1
        if right:
            outcome.answered.append(ended - due)
            outcome.after += ended > self._end
        elif wrong is not None:
            outcome.failures[wrong] += 1
        elif answer.status == 429:
            outcome.refused.append(ended - due)
            outcome.retry_after[answer.retry_after or "none"] += 1
        elif answer.status not in outcome.details:
            outcome.details[answer.status] = _detail(answer.content)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _detail(content: bytes) -> str:
    """What a problem (RFC 9457) says, or else the beginning of the body."""
    try:
        said = json.loads(content)["detail"]
    except (ValueError, KeyError, TypeError):
        said = content.decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in str(said)).split())[:200]
