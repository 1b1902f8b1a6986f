"""Compare the throughput of translation with CTranslate2, with the same weights, each side at its best threads.

    python -m benchmarks.translation models/bundled/de-en/NEWEST --data-dir data

Needs `pip install ctranslate2`. A bundle with int8 products is measured as it is and, with its weights dequantized, in
float32; CTranslate2 gets the dequantized weights. Each setting of each side is a process, and all take turns in every
round. Printed are medians over rounds of generated tokens/s, end tokens included. `sorted`: a library gets all
sentences at once and orders them itself. `arrival`: it gets them in groups in arrival order. Both stop a sentence when
as many hypotheses as the beam has are finished, CTranslate2's rule.
"""

import platform
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import ctranslate2
import numpy as np
import onnxruntime
import sacrebleu
import tyro

from benchmarks.ctranslate2_model import END, convert, spelled
from benchmarks.sides import Side, interleaved, side
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import BATCH_SOURCES, SourceSequence
from models.reading import load_manifest
from models.store import load_bundle
from models.tasks.translation import TranslationConfig, Translator
from models.text.tokenization import SubwordTokenizer
from tests.support.float32_bundle import export_float32
from training.bundling.task_export import TOKENIZER
from training.recipe.loading import parse_recipe
from training.tasks.translation.bundle_weights import bundle_model
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import TranslationRecipe

Tokens = list[int]
Translate = Callable[[Sequence[Tokens], int], list[Tokens]]
"""A function of sources and a beam size that returns the best translations."""

_SETTINGS = {"1 thread": (1, 1), "2 threads": (1, 2), "2 at once": (2, 1)}
"""Decodings at once, and threads of each."""
_CELLS = ((1, "arrival"), (BATCH_SOURCES, "sorted"), (BATCH_SOURCES, "arrival"))
"""Batch sizes and orders."""
_BEAMS = (1, 5)
_RANDOM_LENGTHS = 8, 24


@dataclass(frozen=True)
class Sentences:
    """The sources that both libraries translate, and their references."""

    sources: list[Tokens]
    references: list[str] | None
    """Translations by people, of sentences from a corpus."""
    output_tokens: int | None
    """Tokens of every translation, where the model's weights are random."""

    def limit(self, source: Tokens) -> int:
        """Return the largest number of tokens of a translation."""
        return 2 * len(source) + 10 if self.output_tokens is None else self.output_tokens


def main(
    bundles: Annotated[tuple[Path, ...], tyro.conf.Positional],
    data_dir: Path = Path("data"),
    texts: Path | None = None,
    output_tokens: int | None = None,
    sentences: int = 256,
    rounds: int = 3,
) -> None:
    """Print a Markdown table for each bundle, and the mean ratio of all.

    Args:
        bundles: Directories of translation models whose output layer is a linear one (lin, or pow with p = 2).
        data_dir: Directory that holds the corpus of which the test split is translated.
        texts: File to translate instead, of one sentence a line.
        output_tokens: Translate random tokens instead, with so many tokens of output, for models of random weights.
        sentences: Sentences, spread evenly over the texts.
        rounds: Rounds of each cell, after one to warm up.
    """
    print(
        f"{sentences} sentences, medians of {rounds} rounds; onnxruntime {onnxruntime.__version__}, "
        f"ctranslate2 {ctranslate2.__version__}, {platform.machine()}"
    )
    ratios = []
    for bundle in bundles:
        ratios += _compare(bundle, _sentences(bundle, data_dir, texts, output_tokens, sentences), rounds)
    print(f"\nof all: least ratio {min(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.2f}")


def _sentences(bundle: Path, data_dir: Path, texts: Path | None, output_tokens: int | None, count: int) -> Sentences:
    translator = load_bundle(bundle, threads=1)
    assert isinstance(translator, Translator)
    if output_tokens is not None:
        generator = np.random.default_rng(0)
        lengths = generator.integers(*_RANDOM_LENGTHS, count)
        sources = [generator.integers(2, translator.config.vocab_size, length).tolist() for length in lengths]
        return Sentences(sources, None, output_tokens)
    if texts is None:
        recipe = parse_recipe(translator.manifest.provenance.recipe)
        assert isinstance(recipe, TranslationRecipe)
        pairs = _spread(split_pairs(recipe.data, "test", data_dir), count)
        lines, references = [source for source, _ in pairs], [target for _, target in pairs]
    else:
        lines, references = _spread(texts.read_text(encoding="utf-8").splitlines(), count), None
    queries = [translator.query(line).parts() for line in lines]
    return Sentences([list(parts[0].tokens) for parts in queries], references, None)


def _spread(items: Sequence[Any], count: int) -> list[Any]:
    return list(items[:: max(1, len(items) // count)][:count])


def _compare(bundle: Path, sentences: Sentences, rounds: int) -> list[float]:
    """Print the table of a bundle; return the ratio of each cell."""
    manifest, model = load_manifest(bundle), bundle_model(bundle)
    assert isinstance(manifest.config, TranslationConfig)
    quantized, tokenizer = manifest.quantization is not None, SubwordTokenizer.from_file(bundle / TOKENIZER)
    print(
        f"\n{bundle.parent.name}:{bundle.name}, {np.mean([len(each) for each in sentences.sources]):.1f} tokens each\n"
    )
    print("| precision | beam | batch | order | Softserve | CTranslate2 | ratio | 1 thread each | BLEU | same |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    ratios, notes = [], []
    for precision in ("float32", "int8") if quantized else ("float32",):
        with tempfile.TemporaryDirectory() as directory:
            ours, theirs = bundle, Path(directory) / "ctranslate2"
            if precision == "float32" and quantized:
                ours = export_float32(model, bundle, Path(directory) / bundle.parent.name / bundle.name)
            quantization = None if precision == "float32" else precision
            convert(model, theirs, end_id=manifest.config.special_tokens.end, quantization=quantization)
            makers = {
                (name, setting): partial(side, make, path, precision, *numbers, sentences)
                for name, make, path in (("Softserve", _softserve, ours), ("CTranslate2", _ctranslate2, theirs))
                for setting, numbers in _SETTINGS.items()
            }
            alone = {key: _alone(maker, key[1], sentences) for key, maker in makers.items()}
            with ExitStack() as stack:
                sides = {key: stack.enter_context(maker()) for key, maker in makers.items()}
                for beam in _BEAMS:
                    for batch, order in _CELLS:
                        rates, results = _cell(sides, sentences, beam, batch, order, rounds)
                        cell = f"{precision} | {beam} | {batch} | {order}"
                        ratios.append(_report(cell, tokenizer, rates, results, sentences))
            notes.append(_note(precision, alone, rates))
    print(f"\nleast ratio {min(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.2f}")
    print("\n".join(notes))
    return ratios


Key = tuple[str, str]
"""Name and setting of a side."""


def _softserve(bundle: Path, precision: str, at_once: int, threads: int, sentences: Sentences) -> Translate:
    translator = load_bundle(bundle, threads=at_once * threads, parallel=at_once)
    assert isinstance(translator, Translator)

    def run(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        options = SearchOptions(stop="full")
        queries = [SourceSequence(tuple(source), beam, options, sentences.limit(source)) for source in sources]
        return [list(found[0].tokens) for found in translator.decoder.search(queries, parallel=at_once)]

    return run


def _ctranslate2(model: Path, precision: str, at_once: int, threads: int, sentences: Sentences) -> Translate:
    translator = ctranslate2.Translator(
        str(model), device="cpu", compute_type=precision, inter_threads=at_once, intra_threads=threads
    )
    longest = sentences.output_tokens or 256

    def run(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        results = translator.translate_batch(
            [spelled(source) for source in sources],
            beam_size=beam,
            max_batch_size=BATCH_SOURCES,
            max_decoding_length=longest,
            min_decoding_length=0,
        )
        return [[int(token) for token in result.hypotheses[0] if token != END] for result in results]

    return run


def _groups(sentences: Sentences, batch: int, order: str, setting: str) -> list[list[Tokens]]:
    """Return the sources of each call: all of them, or as many as are decoded at once."""
    sources = sentences.sources
    size = len(sources) if order == "sorted" else batch * _SETTINGS[setting][0]
    return [sources[first : first + size] for first in range(0, len(sources), size)]


def _cell(
    sides: Mapping[Key, Side], sentences: Sentences, beam: int, batch: int, order: str, rounds: int
) -> tuple[dict[Key, float], dict[Key, list[Tokens]]]:
    """Return the tokens/s of each side and its translations; one sentence is never decoded by several threads."""
    chosen = {f"{key}": (key, each) for key, each in sides.items() if batch > 1 or _SETTINGS[key[1]][0] == 1}
    groups = {name: _groups(sentences, batch, order, key[1]) for name, (key, _) in chosen.items()}
    medians, results = interleaved({name: each for name, (_, each) in chosen.items()}, groups, (beam,), rounds)
    found = {key: results[name] for name, (key, _) in chosen.items()}
    return {key: _tokens(found[key]) / medians[name] for name, (key, _) in chosen.items()}, found


def _alone(maker: Callable[[], AbstractContextManager[Side]], setting: str, sentences: Sentences) -> float:
    """Return the tokens/s of a side while no other has a process, in the last cell."""
    with maker() as only:
        groups = _groups(sentences, *_CELLS[-1], setting)
        only.time(groups, _BEAMS[-1])
        seconds, results = only.time(groups, _BEAMS[-1])
    return _tokens(results) / seconds


def _tokens(results: Sequence[Tokens]) -> int:
    return sum(len(tokens) + 1 for tokens in results)


def _best(name: str, rates: Mapping[Key, float]) -> Key:
    return max((key for key in rates if key[0] == name), key=lambda key: rates[key])


def _report(
    cell: str,
    tokenizer: SubwordTokenizer,
    rates: Mapping[Key, float],
    results: Mapping[Key, list[Tokens]],
    sentences: Sentences,
) -> float:
    ours, theirs = (_best(name, rates) for name in ("Softserve", "CTranslate2"))
    ratio = rates[ours] / rates[theirs]
    single = rates["Softserve", "1 thread"] / rates["CTranslate2", "1 thread"]
    shown = [f"{rates[key]:.0f} ({key[1]})" for key in (ours, theirs)]
    bleu = ""
    if sentences.references is not None:
        texts = (tokenizer.decode_batch(results[key]) for key in (ours, theirs))
        bleu = ", ".join(f"{sacrebleu.corpus_bleu(each, [sentences.references]).score:.1f}" for each in texts)
    same = sum(a == b for a, b in zip(results[ours], results[theirs], strict=True))
    cells = [cell, *shown, f"{ratio:.2f}", f"{single:.2f}", bleu, f"{same}/{len(sentences.sources)}"]
    print(f"| {' | '.join(cells)} |", flush=True)
    return ratio


def _note(precision: str, alone: Mapping[Key, float], rates: Mapping[Key, float]) -> str:
    """Return how fast each side was alone, before the others had processes, and in the last cell's rounds."""
    parts = (f"{' '.join(key)} {alone[key]:.0f} / {rates[key]:.0f}" for key in rates)
    return f"{precision}, last cell, tokens/s alone / in rounds: {'; '.join(parts)}"


if __name__ == "__main__":
    tyro.cli(main)
