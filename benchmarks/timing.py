"""Time calls that are compared, in rounds in which all take turns, so that what else runs on the machine meets each."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

__all__ = ["interleaved", "medians_of"]

K = TypeVar("K")


def interleaved(
    calls: Mapping[K, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[K, list[float]]:
    """Return the seconds of each call in rounds in which every call runs once, after some that do not count."""
    found: dict[K, list[float]] = {name: [] for name in calls}
    for number in range(warm_up + rounds):
        for name, call in calls.items():
            started = clock()
            call()
            if number >= warm_up:
                found[name].append(clock() - started)
    return found


def medians_of(
    calls: Mapping[K, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[K, float]:
    """Return the median seconds of each call; see `interleaved`."""
    return {name: statistics.median(values) for name, values in interleaved(calls, rounds, clock=clock).items()}
