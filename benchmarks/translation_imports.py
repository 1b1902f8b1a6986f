"""Import translation models of true sizes with random weights, and compare their speed with CTranslate2's conversion.

    python -m benchmarks.translation_imports --only t5-small t5-base

Needs `pip install ctranslate2`. The first table has the largest difference of a log-probability from transformers on
the first built-in sample texts, how many greedy translations are those of `generate`, the peak of the import's resident
memory, of which pages of mapped files are a part, and the memory of a process that has loaded the bundle. The second
has medians of generated tokens/s: both sides have the same number of threads, a process each, and take turns. Ratios
are medians of those of each round, of time and of processor time. Sources are random tokens.
"""

import json
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import ctranslate2
import numpy as np
import onnxruntime
import tyro

from benchmarks.marian import converted_model
from benchmarks.sides import Side, side
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.store import load_bundle
from models.tasks.translation import Translator
from tests.support.translation_directories import TRUE_SIZES, write_directory
from training.importing.samples import Samples

__all__ = ["main"]

Tokens = list[int]
Translate = Callable[[Sequence[Tokens], int], list[Tokens]]
Precision = Literal["float32", "int8"]

_BEAMS = (1, 4)
_SOURCE_LENGTHS = 8, 24
_FIRST, _BEYOND = 5, 150
"""Ids of the tokens of sources: those of pieces of the small tokenizer."""
_GENERATED = 4
"""Sources whose greedy translations are compared with `generate`."""


class _FewSamples(Samples):
    """The first built-in texts: random weights never end an output, so that comparisons take long."""

    def compared(self) -> tuple[str, ...]:
        return self.texts


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """The measurements of each model."""

    sentences: int
    output_tokens: int
    batch_sizes: tuple[int, ...]
    threads: int
    rounds: int
    precisions: tuple[Precision, ...]


def main(
    only: tuple[str, ...] = tuple(TRUE_SIZES),
    sentences: int = 8,
    output_tokens: int = 24,
    batch_sizes: tuple[int, ...] = (1, 8),
    threads: int = 2,
    rounds: int = 5,
    precisions: tuple[Precision, ...] = ("float32", "int8"),
    texts: int = 2,
    layers: int | None = None,
    directory: Path | None = None,
) -> None:
    """Print two Markdown tables of each model.

    Args:
        only: Models, of those of `tests.support.translation_directories`.
        sentences: Random sources of 8 to 23 tokens.
        output_tokens: Tokens of every output.
        batch_sizes: Sources that are decoded together; one at a time, an eighth of the sources is decoded.
        threads: Threads of both sides.
        rounds: Rounds of each cell, after one to warm up; with 0 the second table is left out.
        precisions: Precisions of both sides.
        texts: Built-in sample texts that are compared with transformers.
        layers: Layers of encoder and decoder each, for a machine that true sizes do not fit into; by default all.
        directory: Directory for the models, which need 4 times their size; by default a temporary one.
    """
    plan = _Plan(
        sentences=sentences,
        output_tokens=output_tokens,
        batch_sizes=batch_sizes,
        threads=threads,
        rounds=rounds,
        precisions=precisions,
    )
    print(
        f"{sentences} sources, {output_tokens} tokens of output, {threads} threads, medians of {rounds} rounds; "
        f"onnxruntime {onnxruntime.__version__}, ctranslate2 {ctranslate2.__version__}, {platform.machine()}"
    )
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    for name in only:
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            _measure(name, Path(temporary), plan, texts, layers)


def _measure(name: str, root: Path, plan: _Plan, texts: int, layers: int | None) -> None:
    parameters = _apart(_written, name, root / "original", layers)
    print("\n| model | M parameters | precision | difference | import (s) | peak (GB) | loaded (GB) | as `generate` |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for precision in plan.precisions:
        facts = _apart(imported, root, precision, texts)
        loaded, greedy = _apart(_loaded, root / "models" / precision / "1", plan)
        expected = _apart(_generated, root / "original", root / "models" / precision / "1", plan)
        same = sum(one == other for one, other in zip(greedy, expected, strict=True))
        print(f"| {name} | {parameters} | {precision} | {facts} | {loaded:.2f} | {same}/{len(greedy)} |", flush=True)
    if plan.rounds == 0:
        return
    print("\n| model | precision | beam | batch | Softserve | CTranslate2 | ratio | of processor time | same |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for precision in plan.precisions:
        converted = _apart(_converted, root / "original", root / f"converted-{precision}", precision)
        for cells in _speeds(root / "models" / precision / "1", converted, precision, plan):
            print(f"| {name} | {precision} | {cells} |", flush=True)


def _apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function that runs in a process of its own, whose memory is returned then."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return executor.submit(function, *arguments).result()


def _written(name: str, directory: Path, layers: int | None) -> str:
    family, sizes = TRUE_SIZES[name]
    if layers is not None:
        sizes = {field: layers if field.endswith("layers") else size for field, size in sizes.items()}
    model = write_directory(family, directory, **sizes)
    return f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.0f}"


def imported(root: Path, precision: Precision, texts: int) -> str:
    """Import a directory; return the largest difference, the seconds and the peak of the memory, as cells."""
    from training.bundling.bundle import BundleSettings
    from training.importing.importer import ImportOptions, chosen_importer, write_imported
    from training.importing.samples import BUILT_IN
    from training.importing.source import open_source

    source, started = open_source(str(root / "original")), time.perf_counter()
    options = ImportOptions(languages="en-de", samples=_FewSamples(BUILT_IN[1 : texts + 1], "built-in texts"))
    settings = BundleSettings(
        name=precision,
        version=1,
        description="",
        licence="unstated",
        quantization="int8" if precision == "int8" else "none",
    )
    found = write_imported(chosen_importer(source)(source, options), settings, root / "models")
    seconds = time.perf_counter() - started
    return f"{found.difference:.1e} | {seconds:.0f} | {_peak():.2f}"


def _peak() -> float:
    """Return the largest resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _sources(count: int) -> list[Tokens]:
    generator = np.random.default_rng(0)
    return [
        generator.integers(_FIRST, _BEYOND, length).tolist() for length in generator.integers(*_SOURCE_LENGTHS, count)
    ]


def _loaded(bundle: Path, plan: _Plan) -> tuple[float, list[Tokens]]:
    """Return the resident memory of a process that has translated by the bundle, in GB, and greedy translations."""
    translate = softserve(bundle, plan.threads, plan.output_tokens)
    found = translate(_sources(_GENERATED), 1)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e9, found


def _generated(directory: Path, bundle: Path, plan: _Plan) -> list[Tokens]:
    """Return what transformers generates, without the tokens that are forced."""
    import torch
    import transformers

    languages, end = _facts(bundle)
    kind = json.loads((directory / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    model = getattr(transformers, kind).from_pretrained(directory, dtype=torch.float32).eval()
    forced = languages.forced(None)
    found = []
    for source in _sources(_GENERATED):
        output = model.generate(
            torch.tensor([[*languages.prefix(None), *source, end]]),
            forced_bos_token_id=forced[0] if forced else None,
            forced_eos_token_id=None,  # the default of mBART makes the last token before the limit an end
            num_beams=1,
            do_sample=False,
            max_new_tokens=plan.output_tokens + len(forced),
        )
        tokens = output[0, 1 + len(forced) :].tolist()
        found.append(tokens[: tokens.index(end)] if end in tokens else tokens)
    return found


def _facts(bundle: Path) -> tuple[Any, int]:
    """Return the languages of a bundle and the token that ends texts."""
    from models.reading import load_manifest

    config: Any = load_manifest(bundle).config
    return config.languages, config.special_tokens.end


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


def _converted(directory: Path, target: Path, precision: str) -> Path:
    """Return the directory of CTranslate2's own conversion.

    CTranslate2 4.8.5 does not find the tokens of languages where the tokenizers of transformers 5 have them, and
    refuses tokenizers of fewer tokens than the model has. Here its converter gets a token for each embedding, and for
    mBART-50 the tokens of begin and start that `config.json` says, which its own reading leaves undefined.
    """
    from ctranslate2.converters import transformers

    def tokens(loader: object, model: Any, tokenizer: Any) -> list[str]:
        del loader
        found: dict[str, None] = {}
        for number in range(model.config.vocab_size):
            token = tokenizer.convert_ids_to_tokens(number)
            found[f"madeupword{number}" if token is None or token in found else token] = None
        return list(found)

    def configure(loader: object, config: Any, model: Any, tokenizer: Any) -> None:
        transformers.BartLoader.set_config(loader, config, model, tokenizer)
        config.bos_token = tokenizer.convert_ids_to_tokens(model.config.bos_token_id)

    transformers.M2M100Loader.get_vocabulary = transformers.MBartLoader.get_vocabulary = tokens
    transformers.MBartLoader.set_config = configure
    return converted_model(directory, target, precision)


def ctranslate2_side(model: Path, bundle: Path, precision: Precision, threads: int, output_tokens: int) -> Translate:
    """Return CTranslate2's translation by a converted model, of the same tokens as the bundle's."""
    vocabulary: list[str] = json.loads((model / "shared_vocabulary.json").read_text(encoding="utf-8"))
    languages, end = _facts(bundle)
    prefix, forced = languages.prefix(None), [vocabulary[token] for token in languages.forced(None)]
    ids = {piece: token for token, piece in enumerate(vocabulary)}
    translator = ctranslate2.Translator(str(model), compute_type=precision, inter_threads=1, intra_threads=threads)

    def run(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        results = translator.translate_batch(
            [[vocabulary[token] for token in (*prefix, *source, end)] for source in sources],
            target_prefix=[forced] * len(sources) if forced else None,
            beam_size=beam,
            max_batch_size=len(sources),
            max_decoding_length=output_tokens + len(forced),
            min_decoding_length=output_tokens + len(forced),
        )
        return [[ids[piece] for piece in result.hypotheses[0][len(forced) :]] for result in results]

    return run


def _speeds(bundle: Path, converted: Path, precision: Precision, plan: _Plan) -> Iterator[str]:
    """Yield the cells of each beam size and batch size."""
    with ExitStack() as stack:
        made = plan.threads, plan.output_tokens
        sides = {
            "Softserve": stack.enter_context(side(softserve, bundle, *made)),
            "CTranslate2": stack.enter_context(side(ctranslate2_side, converted, bundle, precision, *made)),
        }
        for beam in _BEAMS:
            for batch in plan.batch_sizes:
                sources = _sources(plan.sentences if batch > 1 else max(1, plan.sentences // 8))
                groups = [sources[first : first + batch] for first in range(0, len(sources), batch)]
                yield f"{beam} | {batch} | {_cell(sides, groups, beam, plan.rounds)}"


def _cell(sides: Mapping[str, Side], groups: Sequence[Sequence[Tokens]], beam: int, rounds: int) -> str:
    """Return tokens/s of both sides, the ratios, and in how many translations they agree."""
    measured = [{name: each.measure(groups, beam) for name, each in sides.items()} for _ in range(rounds + 1)]
    last, counted = {name: found.results for name, found in measured[-1].items()}, measured[1:]
    rates = {
        name: sum(map(len, last[name])) / statistics.median(each[name].seconds for each in counted) for name in sides
    }
    ratios = (
        statistics.median(each["CTranslate2"].seconds / each["Softserve"].seconds for each in counted),
        statistics.median(
            each["CTranslate2"].processor_seconds / each["Softserve"].processor_seconds for each in counted
        ),
    )
    same = sum(one == other for one, other in zip(last["Softserve"], last["CTranslate2"], strict=True))
    shown = " | ".join(f"{rate:.1f}" for rate in rates.values())
    return f"{shown} | {ratios[0]:.2f} | {ratios[1]:.2f} | {same}/{len(last['Softserve'])}"


if __name__ == "__main__":
    tyro.cli(main)
