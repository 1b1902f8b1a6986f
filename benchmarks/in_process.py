"""Measure a model in this process: the time of its computation without the server, in batches of 1, 8 and 32.

    python -m benchmarks.in_process [MODEL] [--rounds 50]

Operations and sizes take turns in each round, and medians are printed.
"""

import io
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from PIL import Image

from benchmarks.timing import interleaved
from models import ModelStore
from models.store import BUNDLED
from models.tasks.model import Model

__all__ = ["main"]

_BATCH_SIZES = (1, 8, 32)
_WARM_UP = 3
"""Rounds that are not counted."""
_METHODS = {"classify": "classify", "next-word": "next_words", "score": "score"}
"""Method of the model for each operation without beam search."""
_BEAM_SEARCH = {"generate", "translate"}
"""Operations by beam search, whose methods have the same names."""
_BEAM_SIZES = {"greedy": 1, "beam of 5": 5}


def main(
    model: Annotated[str, tyro.conf.Positional] = "next-word:4",
    model_dir: Path = BUNDLED,
    threads: int | None = None,
    rounds: int = 50,
) -> None:
    """Print the median time of each operation and batch size; raises the errors of `ModelStore.load`.

    Args:
        model: Name or name:version of a model.
        model_dir: Directory that holds the bundles.
        threads: Threads of the model; by default all cores.
        rounds: Repetitions of each measurement; the sizes and operations of a round take turns.
    """
    loaded: Model[Any] = ModelStore(model_dir).load(model, threads=threads)
    calls = _calls(loaded)
    timed = {(name, size): partial(call, size) for size in _BATCH_SIZES for name, call in calls.items()}
    for (name, size), values in sorted(interleaved(timed, rounds, warm_up=_WARM_UP).items()):
        median = statistics.median(values)
        print(f"{name:<11} batch {size:>2}: {1000 * median:7.2f} ms, {size / median:7.0f} {loaded.reads}s/s")


def _calls(model: Model[Any]) -> Mapping[str, Callable[[int], object]]:
    """Return the calls to measure by name; each takes the batch size."""
    example, options = _example(model), {"truncate": True} if model.reads == "text" else {}

    def call(method: str, size: int, **more: int) -> object:
        return getattr(model, method)([example] * size, **options, **more)

    def compute(operation: str, size: int) -> object:
        """Run an operation without tokenization, of a task whose methods are not known here."""
        return model.batch_functions[operation](model.warm_up_parts(operation, size, model.warm_up_lengths[0]))

    calls: dict[str, Callable[[int], object]] = {}
    for operation in model.offers:
        if operation in _BEAM_SEARCH:
            calls |= {name: partial(call, operation, beam_size=size) for name, size in _BEAM_SIZES.items()}
        elif operation in _METHODS:
            calls[_METHODS[operation]] = partial(call, _METHODS[operation])
        else:
            calls[operation] = partial(compute, operation)
    return calls


def _example(model: Model[Any]) -> str | bytes:
    if model.reads == "image":
        Image.new("RGB", (256, 256)).save(file := io.BytesIO(), "PNG")
        return file.getvalue()
    languages = model.config.summary().get("languages")
    if isinstance(languages, Mapping) and languages["source"] == "de":
        return "Ich habe schon lange nach so etwas gesucht."
    return "i have been looking for something like this"


if __name__ == "__main__":
    tyro.cli(main)
