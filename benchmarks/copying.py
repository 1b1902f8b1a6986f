"""Compare translators with and without the component `copy`: names that training has not seen, and time of decoding.

    python -m benchmarks.copying

Names: a small Transformer on 400 generated sentences with made-up names, and the fraction of 60 test sentences with
other names that are translated right, by greedy search. Time: bundles of the size of `de-en` with random weights, int8,
random sources of 20 tokens and as many output tokens, CPU time of all sources together, one thread. Rounds of both
bundles alternate.
"""

import functools
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import tyro

from benchmarks.timing import medians_of
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.store import load_bundle
from models.tasks.translation import Translator
from tests.support.name_pairs import name_recipe, right_translations, train_names, write_name_pairs
from tests.support.translation_bundle import make_bundle
from training.run.directory import RunDirectory

_ROUNDS = 9
_LENGTH = 20
_SHAPES = ((1, 1), (1, 5), (8, 5), (32, 5))
"""Sources at a time, and hypotheses of each."""
_VOCABULARY = 12_000


def main(seeds: int = 3) -> None:
    """Print two Markdown tables.

    Args:
        seeds: Models that are trained with each output layer.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        _print_names(Path(directory), seeds)
        _print_times(Path(directory))


def _print_names(directory: Path, seeds: int) -> None:
    write_name_pairs(directory)
    print("| output layer | right translations, % (seeds) | training, s |")
    print("| --- | --- | --- |")
    for layer in ("lin", "pow", "lin, copy", "pow, copy"):
        right, seconds = [], []
        for seed in range(seeds):
            started = time.process_time()
            task = train_names(name_recipe(layer), RunDirectory(directory / f"{layer}-{seed}"), directory, seed)
            seconds.append(time.process_time() - started)
            right.append(100 * right_translations(task))
        each = ", ".join(f"{value:.0f}" for value in right)
        print(f"| `{layer}` | {statistics.fmean(right):.0f} ({each}) | {statistics.median(seconds):.0f} |", flush=True)


def _print_times(directory: Path) -> None:
    models = {
        name: load_bundle(_bundle(directory / name, kernels), threads=1)
        for name, kernels in (("without", "['pow']"), ("copying", "['pow', 'copy']"))
    }
    print("\n| sources at a time | beam | `pow`, ms | `pow, copy`, ms | ratio |")
    print("| --- | --- | --- | --- | --- |")
    for count, beam_size in _SHAPES:
        drawn = np.random.default_rng(0).integers(2, _VOCABULARY, (count, _LENGTH)).tolist()
        queries = [SourceSequence(tuple(source), beam_size, SearchOptions(), _LENGTH) for source in drawn]
        calls = {name: functools.partial(_search, model, queries) for name, model in models.items()}
        found = medians_of(calls, _ROUNDS, clock=time.process_time)
        without, copying = (1000 * found[name] for name in ("without", "copying"))
        print(f"| {count} | {beam_size} | {without:.1f} | {copying:.1f} | {copying / without:.2f} |", flush=True)


def _bundle(directory: Path, kernels: str) -> Path:
    return make_bundle(directory, "small", _VOCABULARY, [f"output_layer.kernels={kernels}", "network.encoder_layers=6"])


def _search(model: Translator, queries: list[SourceSequence]) -> None:
    model.decoder.search(queries)


if __name__ == "__main__":
    tyro.cli(main)
