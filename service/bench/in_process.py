"""A model measured in this process: what the server has to start from."""

import io
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from PIL import Image

from models import ModelStore
from models.tasks.model import Model
from service.bench.options import InProcess

__all__ = ["measure"]

_BATCHES = (1, 8, 32)
_TEXT = "i have been looking for something like this"
_GERMAN = "Ich habe schon lange nach so etwas gesucht."
_WARM_UP = 3
"""Rounds that are not counted."""


def measure(model: str, options: InProcess) -> None:
    """Prints the median time of each call and batch size. Raises what `ModelStore.load` raises."""
    calls = _calls(ModelStore(options.model_dir).load(model, threads=options.threads))
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.rounds + _WARM_UP):
        for count in _BATCHES:
            for name, call in calls.items():
                started = time.perf_counter()
                call(count)
                times.setdefault((name, count), []).append(time.perf_counter() - started)
    for (name, count), values in sorted(times.items()):
        median = statistics.median(values[_WARM_UP:])
        print(f"{name:<11} batch {count:>2}: {1000 * median:7.2f} ms, {count / median:7.0f} texts/s")


def _calls(model: Model[Any]) -> Mapping[str, Callable[[int], object]]:
    """Return the calls to measure, each a function of the number of inputs."""
    each: str | bytes = _TEXT
    options: dict[str, object] = {"truncate": True}
    if model.reads == "image":
        file = io.BytesIO()
        Image.new("RGB", (256, 256)).save(file, "PNG")
        each, options = file.getvalue(), {}
    elif "translate" in model.offers:
        each = _GERMAN
    calls: dict[str, Callable[[int], object]] = {}
    for operation in model.offers:
        name = "next_words" if operation == "next-word" else operation
        method = getattr(model, name)
        if model.continuous:
            for search, beam_size in (("greedy", 1), ("beam of 5", 5)):
                calls[search] = partial(_call, method, each, {**options, "beam_size": beam_size})
        else:
            calls[name] = partial(_call, method, each, options)
    return calls


def _call(method: Callable[..., object], each: str | bytes, options: Mapping[str, object], count: int) -> object:
    return method([each] * count, **options)
