"""Measure the ceiling of the throughput: the same model in processes without HTTP and without waiting for requests."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.classifier import BATCH, Answer, Classifier
from benchmarks.sides import Work, side

__all__ = ["ceiling"]


def ceiling(bundle: Path, texts: Sequence[str], processors: int, seconds: float, *, alone: bool) -> float:
    """Return texts/s, over whole passes that take about that many seconds.

    A process for each processor computes batches of 32 texts that are sorted by length. For a connection that is alone,
    so that there is one text at a time, one process with all threads computes texts singly.
    """
    count, threads = (1, processors) if alone else (processors, 1)
    ordered = list(texts) if alone else sorted(texts, key=len)
    size = 1 if alone else BATCH
    groups = [ordered[first : first + size] for first in range(0, len(ordered), size)]
    with ExitStack() as stack:
        sides = [stack.enter_context(side(_make, bundle, threads)) for _ in range(count)]
        with ThreadPoolExecutor(count) as pool:
            slowest: float = max(pool.map(lambda each: each.time(groups)[0], sides))
            passes = math.ceil(seconds / slowest)
            times: list[float] = list(pool.map(lambda each: each.time(groups * passes)[0], sides))
    return sum(passes * len(texts) / time for time in times)


def _make(bundle: Path, threads: int) -> Work:
    classifier = Classifier.warm(bundle, threads)

    def classify(texts: Sequence[str]) -> list[Answer]:
        return classifier.classify(texts)

    return classify
