"""Compare the throughput of an imported MarianMT model with CTranslate2's conversion of the same directory.

    python -m tests.support.marian_directory my-opus-mt
    softserve-train import my-opus-mt --output my-models --name opus-float32
    softserve-train import my-opus-mt --output my-models --name opus-int8 --quantize int8 --texts sentences.txt
    python -m benchmarks.marian my-opus-mt my-models/opus-float32/1 my-models/opus-int8/1

Needs `pip install ctranslate2`. Sources are random tokens, and every output has the same number of them on both sides:
the model must not end by itself, as those of `marian_directory` do not. Both sides have one thread or two, each is a
process of its own, and they take turns in every round. Printed are medians over rounds of generated tokens/s.
"""

import json
import platform
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import ctranslate2
import numpy as np
import onnxruntime
import tyro

from benchmarks.sides import Side, interleaved, side
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.reading import load_manifest
from models.store import load_bundle
from models.tasks.translation import Translator

__all__ = ["converted_model", "ctranslate2_side", "softserve", "sources_of"]

Tokens = list[int]
Translate = Callable[[Sequence[Tokens], int], list[Tokens]]
"""A function of sources and a beam size that returns the best translations."""

_BEAMS = (1, 4)
_BATCHES = (1, 32)
_THREADS = (1, 2)
_SOURCE_LENGTHS = 8, 24
_ALONE = 1 / 8
"""Fraction of the sources that are translated one at a time, which takes as much longer."""


def main(
    directory: Annotated[Path, tyro.conf.Positional],
    bundles: Annotated[tuple[Path, ...], tyro.conf.Positional],
    sentences: int = 128,
    output_tokens: int = 24,
    rounds: int = 3,
) -> None:
    """Print a Markdown table.

    Args:
        directory: MarianMT directory.
        bundles: Its imports, in float32 or int8; CTranslate2 gets the same precision.
        sentences: Random sources of 8 to 23 tokens.
        output_tokens: Tokens of every output.
        rounds: Rounds of each cell, after one to warm up.
    """
    print(
        f"{sentences} sources, {output_tokens} tokens of output, medians of {rounds} rounds; onnxruntime "
        f"{onnxruntime.__version__}, ctranslate2 {ctranslate2.__version__}, {platform.machine()}\n"
    )
    print("| precision | beam | batch | threads | Softserve | CTranslate2 | ratio | same |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    ratios = []
    sources = sources_of(directory, sentences)
    for bundle in bundles:
        precision = "float32" if load_manifest(bundle).quantization is None else "int8"
        with tempfile.TemporaryDirectory() as temporary:
            converted = converted_model(directory, Path(temporary) / "ctranslate2", precision)
            for threads in _THREADS:
                with ExitStack() as stack:
                    sides = {
                        "Softserve": stack.enter_context(side(softserve, bundle, threads, output_tokens)),
                        "CTranslate2": stack.enter_context(
                            side(ctranslate2_side, converted, directory, precision, threads, output_tokens)
                        ),
                    }
                    for beam in _BEAMS:
                        for batch in _BATCHES:
                            cell = f"{precision} | {beam} | {batch} | {threads}"
                            ratios.append(_cell(cell, sides, sources, beam, batch, rounds))
    print(f"\nleast ratio {min(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.2f}")


def sources_of(directory: Path, count: int) -> list[Tokens]:
    """Return random token ids of the vocabulary of a directory."""
    size = json.loads((directory / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    generator = np.random.default_rng(0)
    lengths = generator.integers(*_SOURCE_LENGTHS, count)
    return [generator.integers(2, size - 1, length).tolist() for length in lengths]


def converted_model(directory: Path, target: Path, precision: str) -> Path:
    """Return the directory of CTranslate2's own conversion."""
    converter = ctranslate2.converters.TransformersConverter(str(directory))
    converter.convert(str(target), quantization=None if precision == "float32" else precision)
    return target


def softserve(bundle: Path, threads: int | None, output_tokens: int, device: str = "cpu") -> Translate:
    """Return the bundle's translation of token ids to outputs of so many tokens."""
    translator = load_bundle(bundle, threads=threads, device=device)
    assert isinstance(translator, Translator)

    def run(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        options = SearchOptions(stop="full")
        queries = [SourceSequence(tuple(source), beam, options, output_tokens) for source in sources]
        return [list(found[0].tokens) for found in translator.decoder.search(queries, len(queries))]

    return run


def ctranslate2_side(
    model: Path, directory: Path, precision: str, threads: int | None, output_tokens: int, device: str = "cpu"
) -> Translate:
    """Return CTranslate2's translation by a converted model; `directory` is the original."""
    vocabulary = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    pieces = {token: piece for piece, token in vocabulary.items()}
    translator = ctranslate2.Translator(
        str(model),
        device=device.partition(":")[0],
        device_index=int(device.partition(":")[2] or 0),
        compute_type=precision,
        inter_threads=1,
        intra_threads=threads or 0,
    )

    def run(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        results = translator.translate_batch(
            [[*(pieces[token] for token in source), "</s>"] for source in sources],
            beam_size=beam,
            max_batch_size=len(sources),
            max_decoding_length=output_tokens,
            min_decoding_length=output_tokens,
        )
        return [[vocabulary[piece] for piece in result.hypotheses[0]] for result in results]

    return run


def _cell(cell: str, sides: dict[str, Side], sources: Sequence[Tokens], beam: int, batch: int, rounds: int) -> float:
    """Print the tokens/s of both sides, and in how many translations they agree; return their ratio."""
    sources = sources if batch > 1 else sources[: max(1, int(_ALONE * len(sources)))]
    groups = [sources[first : first + batch] for first in range(0, len(sources), batch)]
    medians, results = interleaved(sides, dict.fromkeys(sides, groups), (beam,), rounds)
    rates = {name: sum(map(len, results[name])) / seconds for name, seconds in medians.items()}
    ratio = rates["Softserve"] / rates["CTranslate2"]
    same = sum(one == other for one, other in zip(results["Softserve"], results["CTranslate2"], strict=True))
    shown = " | ".join(f"{rate:.0f}" for rate in rates.values())
    print(f"| {cell} | {shown} | {ratio:.2f} | {same}/{len(sources)} |", flush=True)
    return ratio


if __name__ == "__main__":
    tyro.cli(main)
