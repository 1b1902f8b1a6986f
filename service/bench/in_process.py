"""A model measured in this process: what the server has to start from."""

import io
import statistics
import time
from collections.abc import Callable, Mapping

from PIL import Image

from models import Classifier, Generator, ImageClassifier, ModelStore, Translator
from models.bundle.store import Model
from service.bench.options import InProcess

__all__ = ["measure"]

_BATCHES = (1, 8, 32)
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


def _calls(model: Model) -> Mapping[str, Callable[[int], object]]:
    """What is measured, on that many texts."""
    if isinstance(model, ImageClassifier):
        file = io.BytesIO()
        Image.new("RGB", (256, 256)).save(file, "PNG")
        return {"classify": lambda count: model.classify([file.getvalue()] * count)}
    if isinstance(model, Translator):
        sentence = "Ich habe schon lange nach so etwas gesucht."
        return {
            "greedy": lambda count: model.translate([sentence] * count, beam_size=1),
            "beam of 5": lambda count: model.translate([sentence] * count, beam_size=5),
        }
    text = "i have been looking for something like this"
    if isinstance(model, Generator):
        return {
            "greedy": lambda count: model.generate([text] * count, beam_size=1, truncate=True),
            "beam of 5": lambda count: model.generate([text] * count, beam_size=5, truncate=True),
        }
    if isinstance(model, Classifier):
        return {"classify": lambda count: model.classify([text] * count, truncate=True)}
    return {
        "next_words": lambda count: model.next_words([text] * count),
        "score": lambda count: model.score([text] * count),
    }
