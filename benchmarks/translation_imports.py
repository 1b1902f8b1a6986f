"""Import translation models of true sizes with random weights, and compare their speed with CTranslate2's conversion.

    python -m benchmarks.translation_imports t5-small t5-base

Needs `pip install ctranslate2`. Printed are the largest difference of a log-probability from transformers on the
built-in sample texts, where the import also requires equal greedy translations; and medians of generated tokens/s in
float32: both sides have the same number of threads, a process each, and take turns. Sources are random tokens.
"""

import json
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import ctranslate2
import numpy as np
import onnxruntime
import tyro

from benchmarks.marian import converted_model
from benchmarks.sides import interleaved, side
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.store import load_bundle
from models.tasks.translation import Translator

__all__ = ["main"]

Tokens = list[int]
Translate = Callable[[Sequence[Tokens], int], list[Tokens]]

_BEAMS = (1, 4)
_SOURCE_LENGTHS = 8, 24
_FIRST, _BEYOND = 5, 150
"""Ids of the tokens of sources: those of pieces of the small tokenizer."""


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional],
    sentences: int = 32,
    output_tokens: int = 24,
    batch_size: int = 32,
    threads: int = 2,
    rounds: int = 3,
    directory: Path | None = None,
) -> None:
    """Print a Markdown table.

    Args:
        names: Of t5-small, t5-base, mt5-small, m2m100-418m, nllb-200-distilled-600m and mbart-large-50.
        sentences: Random sources of 8 to 23 tokens.
        output_tokens: Tokens of every output.
        batch_size: Sources that are decoded together.
        threads: Threads of both sides.
        rounds: Rounds of each cell, after one to warm up.
        directory: Directory for the models, which need 3 times their size; by default a temporary one.
    """
    print(
        f"{sentences} sources, {output_tokens} tokens of output, batches of {batch_size}, {threads} threads, medians "
        f"of {rounds} rounds; onnxruntime {onnxruntime.__version__}, ctranslate2 {ctranslate2.__version__}, "
        f"{platform.machine()}\n"
    )
    print("| model | M parameters | largest difference | import (s) | beam | Softserve | CTranslate2 | ratio | same |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            root = Path(temporary)
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:  # its memory is returned
                facts = executor.submit(imported, name, root).result()
            converted = converted_model(root / "original", root / "converted", "float32")
            sources = _sources(sentences)
            groups = [sources[first : first + batch_size] for first in range(0, sentences, batch_size)]
            with ExitStack() as stack:
                made = (root / "models" / "imported" / "1", threads, output_tokens)
                sides = {
                    "Softserve": stack.enter_context(side(softserve, *made)),
                    "CTranslate2": stack.enter_context(side(ctranslate2_side, converted, *made)),
                }
                for beam in _BEAMS:
                    medians, results = interleaved(sides, dict.fromkeys(sides, groups), (beam,), rounds)
                    rates = {each: sum(map(len, results[each])) / medians[each] for each in sides}
                    pairs = zip(results["Softserve"], results["CTranslate2"], strict=True)
                    same = sum(one == other for one, other in pairs)
                    shown = " | ".join(f"{rate:.0f}" for rate in rates.values())
                    ratio = rates["Softserve"] / rates["CTranslate2"]
                    print(f"| {name} | {facts} | {beam} | {shown} | {ratio:.2f} | {same}/{sentences} |", flush=True)


def imported(name: str, root: Path) -> str:
    """Write a directory and import it; return the parameters, the largest difference and the seconds, as cells."""
    from tests.support.translation_directories import TRUE_SIZES, write_directory
    from training.bundling.bundle import BundleSettings
    from training.importing.importer import ImportOptions, chosen_importer, write_imported
    from training.importing.source import open_source

    family, sizes = TRUE_SIZES[name]
    model = write_directory(family, root / "original", **sizes)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    del model
    source, started = open_source(str(root / "original")), time.perf_counter()
    options = ImportOptions(languages="en-de")
    settings = BundleSettings(name="imported", version=1, description="", licence="unstated")
    found = write_imported(chosen_importer(source)(source, options), settings, root / "models")
    seconds = time.perf_counter() - started
    return f"{parameters / 1e6:.0f} | {found.difference:.1e} | {seconds:.0f}"


def _sources(count: int) -> list[Tokens]:
    generator = np.random.default_rng(0)
    return [
        generator.integers(_FIRST, _BEYOND, length).tolist() for length in generator.integers(*_SOURCE_LENGTHS, count)
    ]


def softserve(bundle: Path, threads: int, output_tokens: int) -> Translate:
    """Return the bundle's translation of token ids, without the tokens that are forced."""
    translator = load_bundle(bundle, threads=threads)
    assert isinstance(translator, Translator)
    languages = translator.config.languages
    prefix, forced = languages.prefix(None), languages.forced(None)
    options = SearchOptions(stop="full", prefix=forced)

    def run(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        most = output_tokens + len(forced)
        queries = [SourceSequence((*prefix, *source), beam, options, most) for source in sources]
        found = translator.decoder.search(queries, len(queries))
        return [list(each[0].tokens[len(forced) :]) for each in found]

    return run


def ctranslate2_side(model: Path, bundle: Path, threads: int, output_tokens: int) -> Translate:
    """Return CTranslate2's translation by a converted model, of the same tokens as the bundle's."""
    vocabulary: list[str] = json.loads((model / "shared_vocabulary.json").read_text(encoding="utf-8"))
    loaded = load_bundle(bundle, threads=1)
    assert isinstance(loaded, Translator)
    languages, end = loaded.config.languages, loaded.config.special_tokens.end
    prefix, forced = languages.prefix(None), [vocabulary[token] for token in languages.forced(None)]
    del loaded
    ids = {piece: token for token, piece in enumerate(vocabulary)}
    translator = ctranslate2.Translator(str(model), compute_type="float32", inter_threads=1, intra_threads=threads)

    def run(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        results = translator.translate_batch(
            [[vocabulary[token] for token in (*prefix, *source, end)] for source in sources],
            target_prefix=[forced] * len(sources) if forced else None,
            beam_size=beam,
            max_batch_size=len(sources),
            max_decoding_length=output_tokens,
            min_decoding_length=output_tokens,
        )
        return [[ids[piece] for piece in result.hypotheses[0][len(forced) :]] for result in results]

    return run


if __name__ == "__main__":
    tyro.cli(main)
