"""Run the libraries that are compared, each in a process of its own.

Threads of a pool spin for a while before they sleep (OpenMP's for 0.2 s), on the cores that another library computes
on. So a side pauses before it runs.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Measured", "Side", "interleaved", "side"]

_REST = 0.4
"""Seconds after which no thread of a side spins."""

Work = Callable[..., list[Any]]
"""A function that computes a group of inputs."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The time that a side took, that of all its threads on processors, and its results."""

    seconds: float
    processor_seconds: float
    results: list[Any]


@dataclass(frozen=True)
class Side:
    """A library in a process of its own."""

    executor: ProcessPoolExecutor
    rest: float = _REST
    """Seconds of the pause before it runs; 0 where no threads of others compute on the same processors."""

    def time(self, groups: Sequence[Sequence[Any]], *arguments: object) -> tuple[float, list[Any]]:
        """Return the seconds for all groups, one after the other, and their results."""
        measured = self.measure(groups, *arguments)
        return measured.seconds, measured.results

    def measure(self, groups: Sequence[Sequence[Any]], *arguments: object) -> Measured:
        """Compute all groups, one after the other."""
        time.sleep(self.rest)
        return self.executor.submit(_run, groups, arguments).result()


_work: Work
"""The function that a side's process runs."""


def _load(make: Callable[..., Work], arguments: tuple[object, ...]) -> None:
    global _work
    _work = make(*arguments)


def _run(groups: Sequence[Sequence[Any]], arguments: tuple[object, ...]) -> Measured:
    started, processor = time.perf_counter(), time.process_time()
    results = [result for group in groups for result in _work(group, *arguments)]
    return Measured(time.perf_counter() - started, time.process_time() - processor, results)


@contextmanager
def side(make: Callable[..., Work], *arguments: object, method: str = "spawn") -> Iterator[Side]:
    """Start a process that makes its work from the arguments, both of which can be pickled.

    `method` is the start method: with `forkserver`, processes have imported what that was told to.
    """
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, context, _load, (make, arguments)) as executor:
        yield Side(executor)


def interleaved(
    sides: Mapping[str, Side], groups: Mapping[str, Sequence[Sequence[Any]]], arguments: Sequence[object], rounds: int
) -> tuple[dict[str, float], dict[str, list[Any]]]:
    """Return median seconds of each side for its groups, over rounds in which all take turns, and its last results.

    The first round warms up and does not count.
    """
    times: dict[str, list[float]] = {name: [] for name in sides}
    results: dict[str, list[Any]] = {}
    for number in range(rounds + 1):
        for name, each in sides.items():
            seconds, results[name] = each.time(groups[name], *arguments)
            if number:
                times[name].append(seconds)
    return {name: statistics.median(values) for name, values in times.items()}, results
