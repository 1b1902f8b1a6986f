"""Throughput of each model in this process, in batches of 1 to 256, and the memory that it takes of the device."""

import gc
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu.machine import usage
from benchmarks.gpu.results import Context, Values
from benchmarks.gpu.subjects import Subject, computation, subjects

__all__ = ["BATCHES", "batches", "rate", "run", "timed"]

BATCHES, _SMALL_BATCHES = (1, 8, 32, 128, 256), (1, 4)
_WARM_UP = 2
"""Runs of a shape that are not counted: a GPU loads kernels in the first one."""
_SECONDS, _SMALL_SECONDS = 1.2, 0.05
"""Time for which a computation is repeated."""
_REPETITIONS = 3, 300
"""Least and largest number of repetitions."""


def run(context: Context) -> None:
    """Write a row of each model, operation and batch size, and one of its memory."""
    for subject in subjects(context):
        _measure(context, subject)


def batches(context: Context) -> tuple[int, ...]:
    """Return the batch sizes of a run."""
    return _SMALL_BATCHES if context.small else BATCHES


def _measure(context: Context, subject: Subject) -> None:
    memory = f"{subject.name}, memory"
    if context.done(memory):  # the last row of a model
        return
    with usage(context.device, os.getpid()) as used:
        try:
            complete = _rows(context, subject, subject.load(context))
        except Exception as error:
            context.fail([memory], error)
            return
        gc.collect()
    if complete:
        context.measure(memory, used.values)


def _rows(context: Context, subject: Subject, model: Any) -> bool:
    """Measure all operations and batch sizes of a model; return whether there are values of all."""
    unit, found = "tokens" if subject.beam else "texts", True
    for operation, size in itertools.product(model.offers, batches(context)):

        def values(operation: str = operation, size: int = size) -> Values:
            return rate(timed(computation(subject, model, operation, size, small=context.small), context), unit)

        found &= context.measure(f"{subject.name}, {operation}, batch {size}", values)
    return found


def timed(compute: Callable[[], int], context: Context) -> list[tuple[int, float]]:
    """Return the number of units, texts or tokens, and the seconds of each repetition of a computation."""
    for _ in range(_WARM_UP):
        compute()
    found: list[tuple[int, float]] = []
    end = time.perf_counter() + (_SMALL_SECONDS if context.small else _SECONDS)
    while len(found) < _REPETITIONS[0] or (time.perf_counter() < end and len(found) < _REPETITIONS[1]):
        started = time.perf_counter()
        units = compute()
        found.append((units, time.perf_counter() - started))
    return found


def rate(repetitions: list[tuple[int, float]], unit: str) -> dict[str, Any]:
    """Return units/s over all repetitions, and quantiles of their times in milliseconds."""
    units, seconds = np.array(repetitions).T
    p50, p99 = (1000 * np.percentile(seconds, [50, 99])).tolist()
    return {
        "unit": unit,
        "per_second": float(units.sum() / seconds.sum()),
        "p50_ms": p50,
        "p99_ms": p99,
        "repetitions": len(repetitions),
    }
