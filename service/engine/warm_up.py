"""Warm-up: batches of several shapes are computed and timed, so that no request has a cold start."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from models.tasks.model import AnyModel
from service.engine.cost_model import Sample
from service.engine.daemon_executor import DaemonExecutor
from service.engine.priority import lower_thread_priority

__all__ = ["warm_up"]

_COUNT = 8
"""Entries of a batch, besides 1 and the largest number."""
_LONGEST = 0.04
"""Seconds that a batch may be expected to take; longer ones are measured while serving."""
_REPETITIONS, _ENOUGH = 3, 0.01
"""A batch is computed this many times, or until it has taken so many seconds after the first one."""


def warm_up(model: AnyModel, *, max_batch_items: int, parallel_batches: int) -> Mapping[str, Sequence[Sample]]:
    """Test a model, compute its operations for several batch sizes and lengths, and return how long each batch took.

    Batches are computed alone, which is timed. Where requests will be computed concurrently, a single long query of
    each operation is too, so that sessions for it have run. Of continuous decoding each sample is a step: so many
    sequences, of which the longest has so many tokens. Raises any error of the model.
    """
    model.self_test()
    concurrent = 2 if (model.backend.parallel if model.continuous else parallel_batches) > 1 else 0
    counts = sorted({1, min(_COUNT, max_batch_items), *(() if model.continuous else (max_batch_items,))})
    with DaemonExecutor(2, "softserve-warm-up", initializer=lower_thread_priority) as pool:
        measured: dict[str, Sequence[Sample]] = {}
        for operation in model.offers if model.continuous else model.batch_functions:
            samples: list[Sample] = []
            for length in model.warm_up_lengths[: 1 if operation in model.alone else None]:  # of steps: a token
                for count in counts:
                    if samples and not model.continuous and _expected(samples, count, length) > _LONGEST:
                        continue
                    samples += _measured(model, operation, count, length)
                    longest = model, operation, 1, length
            if concurrent:
                with model.backend.concurrently():
                    list(pool.map(_compute, *([each] * concurrent for each in longest)))
            measured[operation] = samples
    return measured


def _expected(samples: Sequence[Sample], count: int, length: int) -> float:
    """Return the time that a batch takes at most, in seconds, if time grows with the padded tokens."""
    return min(each.seconds * max(1.0, count / each.items) * max(1.0, length / each.longest) for each in samples)


def _measured(model: AnyModel, operation: str, count: int, length: int) -> list[Sample]:
    """Return a sample of a batch, or of each step of a decoding: the fastest of several runs.

    The first run of a shape may be many times slower: a GPU loads kernels.
    """
    runs = [_compute(model, operation, count, length) for _ in range(2)]
    while len(runs) < _REPETITIONS and sum(sample.seconds for run in runs[1:] for sample in run) < _ENOUGH:
        runs.append(_compute(model, operation, count, length))
    return [min(same, key=lambda sample: sample.seconds) for same in zip(*runs, strict=False)]


def _compute(model: AnyModel, operation: str, count: int, length: int) -> list[Sample]:
    queries: Sequence[Any] = model.warm_up_parts(operation, count, length)
    if model.continuous:
        return _decode(model, queries)
    started = time.perf_counter()
    model.batch_functions[operation](queries)
    return [Sample(count, max(query.length for query in queries), time.perf_counter() - started)]


def _decode(model: AnyModel, queries: Sequence[Any]) -> list[Sample]:
    """Decode to the end, and return a sample of each step."""
    decoding = model.start_decoding(queries[0].beam_size)
    searches = [(number, query.options, query.max_tokens) for number, query in enumerate(queries)]
    decoding.add([query.tokens for query in queries], searches)
    samples: list[Sample] = []
    while live := len(decoding):
        started = time.perf_counter()
        decoding.step()
        samples.append(Sample(live, len(samples) + 1, time.perf_counter() - started))
    return samples
