"""Size, memory and speed of imported causal models in float32, int8 and int4.

    .venv/bin/python -m benchmarks.causal_quantization                    # --only NAME, --threads 1

Models have published configurations and random weights, as in `benchmarks.causal_equality`, texts random tokens. Each
model is imported three times; memory is that of a process of its own after it has loaded the bundle, less that before.
The three bundles take turns in one process: they score texts of 50 to 200 tokens in one batch, and write tokens after a
prompt of 50, one stream whose keys and values are in the prefix cache. Tokens/s are medians of rounds. The last column
is the largest difference of a token's log-probability from float32; the scores of tokens have a standard deviation of
3.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

from benchmarks.causal_equality import PUBLISHED, import_directory, write_published
from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.language_sampling import DrawQuery
from training.settings import QuantizationName

__all__ = ["measure"]

_PRECISIONS: Mapping[str, QuantizationName] = {"float32": "none", "int8": "int8", "int4": "int4"}
_TEXTS = 16
_PROMPT = 50
_WRITTEN = 32
_CACHE_BYTES = 1 << 30

Tokens = Sequence[int]


def _held_memory() -> int:
    """Return the memory of this process that no file is mapped to, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def _loaded_memory(bundle: Path, threads: int) -> int:
    """Return how much more memory this process holds with a bundle loaded, in bytes."""
    before = _held_memory()
    model = load_bundle(bundle, threads=threads)
    found = _held_memory() - before
    del model
    return found


def _scores(model: CausalLanguageModel, texts: Sequence[Tokens]) -> list[NDArray[np.float32]]:
    found = model.run_score([model.score_token_query(text) for text in texts])
    return [np.array([each.log_probability for each in score.tokens], np.float32) for score in found]


def _write(model: CausalLanguageModel, prompt: Tokens) -> None:
    """Write tokens greedily after a prompt that the prefix cache has."""
    read = tuple(prompt)
    for _ in range(_WRITTEN):
        read = (*read, model.run_draws([DrawQuery(read)])[0].token)


def _medians(models: Mapping[str, CausalLanguageModel], run: Callable[[str], object], rounds: int) -> dict[str, float]:
    """Return the median time of each model in seconds; they take turns, after a first run that does not count."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds + 1):
        for name in models:
            started = time.perf_counter()
            run(name)
            if turn:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in times.items()}


def measure(name: str, folder: Path, *, threads: int, rounds: int) -> list[str]:
    """Make and import one model in a folder, and return its rows of the table."""
    parameters = write_published(folder / name, PUBLISHED[name])
    bundles, held = {}, {}
    for precision, quantize in _PRECISIONS.items():
        importer, bundles[precision] = import_directory(folder / name, folder / precision, quantize=quantize)
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            held[precision] = process.submit(_loaded_memory, bundles[precision], threads).result()
    vocabulary, first = importer.causal.settings.vocab_size, importer.special_tokens.start
    del importer
    models = {precision: load_bundle(bundle, threads=threads) for precision, bundle in bundles.items()}
    generator = np.random.default_rng(0)
    texts = [generator.integers(3, vocabulary, int(length)).tolist() for length in generator.integers(50, 201, _TEXTS)]
    prompt = [*([] if first is None else [first]), *generator.integers(3, vocabulary, _PROMPT).tolist()]
    exact = np.concatenate(_scores(models["float32"], texts))
    changes = {each: np.abs(np.concatenate(_scores(models[each], texts)) - exact).max() for each in models}
    scoring = _medians(models, lambda each: _scores(models[each], texts), rounds)
    for model in models.values():
        model.use_cache(_CACHE_BYTES)
        model.run_draws([DrawQuery(tuple(prompt))])
    writing = _medians(models, lambda each: _write(models[each], prompt), rounds)
    rows = []
    for each in models:
        size = sum(file.stat().st_size for file in bundles[each].iterdir())
        cells = [
            f"{name}, {parameters / 1e6:.0f} M",
            each,
            f"{size / 1e6:.0f}",
            f"{held[each] / 1e6:.0f}",
            f"{len(exact) / scoring[each]:.0f} ({scoring['float32'] / scoring[each]:.2f})",
            f"{_WRITTEN / writing[each]:.1f} ({writing['float32'] / writing[each]:.2f})",
            f"{changes[each]:.2g}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def main(only: str | None = None, threads: int = 1, rounds: int = 3) -> None:
    """Print a row for each model and precision.

    Args:
        only: Name of one model of `benchmarks.causal_equality`; by default GPT-2 and SmolLM-135M.
        threads: Threads of each model.
        rounds: Runs of each, whose median is printed.
    """
    torch.set_num_threads(threads)
    columns = ["model", "weights", "bundle (MB)", "memory (MB)", "scoring, tokens/s (ratio)"]
    columns += ["one stream, tokens/s (ratio)", "largest difference"]
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")
    for name in ("gpt2", "smollm-135m") if only is None else (only,):
        with tempfile.TemporaryDirectory() as folder:
            print("\n".join(measure(name, Path(folder), threads=threads, rounds=rounds)), flush=True)


if __name__ == "__main__":
    tyro.cli(main)
