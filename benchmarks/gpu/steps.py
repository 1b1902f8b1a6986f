"""Where the time of a batch, or of a decoding, goes: kernels, copies, Python, waiting.

A GPU computes while the program goes on, so times of operators in onnxruntime's profile are there those of launching
kernels. Kernels and copies are therefore read from CUPTI's record of the process, which torch's profiler makes; it
includes the kernels of onnxruntime. On a CPU, kernels are onnxruntime's operators, and nothing is copied.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.in_process import batches
from benchmarks.gpu.results import Context, Values
from benchmarks.gpu.subjects import Subject, computation, subjects
from benchmarks.profile import measure_parts

__all__ = ["device_time", "run"]

_REPETITIONS, _SMALL_REPETITIONS = 5, 1
_MEASURED = 1, 32
"""Batch sizes, as far as the run has them."""
_LISTED = 5
"""Operators, or kernels, that are listed."""
_COPIES = ("gpu_memcpy", "gpu_memset")


def run(context: Context) -> None:
    """Write a row of each model and operation, in the smallest batch and in one of 32."""
    sizes = [size for size in batches(context) if size in _MEASURED or context.small]
    for subject in subjects(context):
        loaded = f"{subject.name}, operations"
        context.measure(loaded, partial(_operations, context, subject))
        for operation in context.results.read()["steps", loaded].values.get("operations", ()):
            for size in sizes:
                row = f"{subject.name}, {operation}, batch {size}"
                context.measure(row, partial(_parts, context, subject, operation, size))


def _operations(context: Context, subject: Subject) -> Values:
    return {"operations": list(subject.load(context).offers)}


def _parts(context: Context, subject: Subject, operation: str, size: int) -> Values:
    """Return milliseconds of a computation, in all and by part."""
    repetitions = _SMALL_REPETITIONS if context.small else _REPETITIONS

    def compute(model: Any) -> Callable[[], object]:
        return computation(subject, model, operation, size, small=context.small)

    loaded: list[Any] = []

    def load() -> Any:
        loaded.append(subject.load(context))
        return loaded[-1]

    plain, _, operators = measure_parts(load, compute, repetitions)
    recorded = _recorded(context, compute(loaded[0]), repetitions)  # the other one still records operators
    longest = Counter({name: took for graph in operators.values() for name, (_, took) in graph.items()})
    operators_ms = sum(
        min(plain.graphs[graph], plain.runs[graph] * sum(took for _, took in found.values()) / 1e6)
        for graph, found in operators.items()
    )
    kernels = recorded["kernel"] if context.on_gpu else 1000 * operators_ms
    copies = sum(recorded[name] for name in _COPIES)
    return {
        "total_ms": 1000 * plain.total,
        "graphs_ms": 1000 * sum(plain.graphs.values()),
        "kernels_ms": kernels,
        "copies_ms": copies,
        "python_ms": 1000 * plain.python,
        "waiting_ms": max(0.0, 1000 * (plain.total - plain.python) - kernels - copies),
        "runs": dict(plain.runs),
        "operators": [name for name, _ in longest.most_common(_LISTED)],
    }


def _recorded(context: Context, compute: Callable[[], object], repetitions: int) -> Mapping[str, float]:
    """Return the milliseconds of a computation that the device spent on each category of events."""
    activities = [ProfilerActivity.CUDA] if context.on_gpu else [ProfilerActivity.CPU]
    for _ in range(2):
        compute()
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace.json"
        with profile(activities=activities) as recorded:
            for _ in range(repetitions):
                compute()
            if context.on_gpu:
                torch.cuda.synchronize()
        recorded.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return Counter({name: total / repetitions for name, total in device_time(events).items()})


def device_time(events: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
    """Return the milliseconds of kernels and copies in the events of a trace; kernels at once count each."""
    found: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "kernel" or event.get("cat") in _COPIES:
            found[event["cat"]] += event["dur"] / 1000
    return found
