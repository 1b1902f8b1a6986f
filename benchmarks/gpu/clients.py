"""Load on a server by the project's load generator, in as many processes as one card needs."""

import asyncio
import contextlib
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

from benchmarks.load.client import Client
from benchmarks.load.generator import LoadTest, Outcome, RequestSource
from benchmarks.load.options import LoadOptions
from benchmarks.load.report import client_results
from benchmarks.load.run import new_event_loop
from models.backend.cpus import usable_cpus

__all__ = ["Clients", "clients"]

_MOST = 4
"""Largest number of client processes; one process sends some thousands of requests/s."""
_PROCESSORS = 4
"""Processors for each client process."""
_CONNECTIONS = 16
"""Least number of connections of each client process, so that few connections are those of one process."""


@dataclass(frozen=True)
class Clients:
    """Client processes, which are started once."""

    executor: ProcessPoolExecutor
    most: int

    def load(self, url: str, requests: Callable[[], RequestSource], texts: int, options: LoadOptions) -> dict[str, Any]:
        """Return rates and latencies of requests of so many texts over `options.connections` connections."""
        connections = options.most_connections()
        count = max(1, min(self.most, connections // _CONNECTIONS))
        shares = [connections // count + (number < connections % count) for number in range(count)]
        running = [self.executor.submit(_run, url, requests, replace(options, connections=share)) for share in shares]
        outcomes = [each.result() for each in running]
        found = client_results(_merged(outcomes), texts)
        found["client"]["processor_share"] /= count
        return found


@contextlib.contextmanager
def clients() -> Iterator[Clients]:
    """Start client processes when they are first needed."""
    most = max(1, min(_MOST, usable_cpus() // _PROCESSORS))
    with ProcessPoolExecutor(most, multiprocessing.get_context("spawn")) as executor:
        yield Clients(executor, most)


def _run(url: str, requests: Callable[[], RequestSource], options: LoadOptions) -> Outcome:
    with asyncio.Runner(loop_factory=new_event_loop()) as runner:
        return runner.run(_send(url, requests, options))


async def _send(url: str, requests: Callable[[], RequestSource], options: LoadOptions) -> Outcome:
    async with Client(url, None, options.most_connections()) as client:
        test = LoadTest(client, requests(), options)
        await test.run(_nothing)
        return test.outcome


async def _nothing() -> None:
    """Nothing happens between the warm-up and the measurement."""


def _merged(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of clients that sent requests at the same time."""
    merged = Outcome()
    for outcome in outcomes:
        for field in fields(Outcome):
            own, other = getattr(merged, field.name), getattr(outcome, field.name)
            if isinstance(own, Counter):
                own.update(other)
            elif isinstance(own, list):
                own.extend(other)
            elif isinstance(own, dict):
                own.update(other)
            elif field.name == "seconds":
                merged.seconds = max(own, other)
            else:
                setattr(merged, field.name, own + other)
    return merged
