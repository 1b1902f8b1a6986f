"""Compare the throughput of translation with CTranslate2, with the same weights, and with eager PyTorch.

    python -m benchmarks.translation runs/de-en --data-dir data

Needs `pip install ctranslate2`. Every cell runs all sides once a round; printed are medians over rounds of generated
tokens/s, end tokens included, and ratios. `sorted`: a library gets all sentences at once and orders them itself.
`arrival`: it gets them in batches in arrival order. Both stop a sentence when as many hypotheses as the beam has are
finished, CTranslate2's rule.
"""

import platform
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, get_args

import ctranslate2
import numpy as np
import onnxruntime
import sacrebleu
import torch
import tyro

from benchmarks.ctranslate2_model import END, convert, spelled
from benchmarks.export import Precision, export_at
from benchmarks.sides import Side, interleaved, side
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceQuery
from models.store import load_bundle
from models.tasks.translation import Translator
from models.text.tokenization import SubwordTokenizer
from training.checkpoint import RunDirectory
from training.data.pair_batching import pad
from training.tasks.translation import TranslationTask
from training.tasks.translation.reading import split_pairs
from training.trained import load_trained

Tokens = list[int]
Translate = Callable[[Sequence[Tokens], int], list[Tokens]]
"""A function of sources and a beam size that returns the best translations."""


def main(
    run: Annotated[Path, tyro.conf.Positional],
    data_dir: Path = Path("data"),
    sentences: int = 256,
    rounds: int = 5,
    threads: int = 2,
    eager: bool = False,
) -> None:
    """Print a Markdown table.

    Args:
        run: Run directory of a translation model whose output layer is a linear one (lin, or pow with p = 2).
        data_dir: Directory that holds the corpora.
        sentences: Test sentences, spread evenly over the split.
        rounds: Rounds of each cell, after one to warm up.
        threads: Threads of each side.
        eager: Also time PyTorch eager with greedy search.
    """
    task = load_trained(RunDirectory(run), data_dir, "cpu")
    assert isinstance(task, TranslationTask)
    pairs = split_pairs(task.recipe.data, "test", data_dir)
    pairs = pairs[:: max(1, len(pairs) // sentences)][:sentences]
    sources = task.tokenizer.encode_batch([source for source, _ in pairs])
    references = [target for _, target in pairs]
    print(
        f"{run.name}: {sentences} sentences of {np.mean([len(s) for s in sources]):.1f} tokens, {threads} threads, "
        f"onnxruntime {onnxruntime.__version__}, ctranslate2 {ctranslate2.__version__}, torch {torch.__version__}, "
        f"{platform.machine()}\n"
    )
    print("| precision | beam | batch | order | Softserve | CTranslate2 | ratio | BLEU | BLEU | same |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    ratios = []
    for precision in get_args(Precision):
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            bundle = export_at(precision, RunDirectory(run), Path(directory), data_dir)
            converted, quantization = Path(directory) / "ctranslate2", None if precision == "float32" else precision
            convert(task.model, converted, end_id=task.tokenizer.end_id, quantization=quantization)
            sides = {
                "Softserve": stack.enter_context(side(_softserve, bundle, threads)),
                "CTranslate2": stack.enter_context(side(_ctranslate2, converted, precision, threads)),
            }
            for beam in (1, 5):
                for batch in (1, 32):
                    for order in ("sorted", "arrival") if batch > 1 else ("arrival",):
                        medians, results = _cell(sides, sources, beam, batch, order, rounds)
                        cell = f"{precision} | {beam} | {batch} | {order}"
                        ratios.append(_report(cell, task.tokenizer, medians, results, references))
    print(f"\nleast ratio {min(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.2f}")
    if eager:
        with side(_eager, run, data_dir, threads) as only:
            medians, results = _cell({"eager": only}, sources, 1, 32, "arrival", rounds)
        tokens = sum(len(each) + 1 for each in results["eager"])
        print(f"PyTorch eager with a cache, greedy, batch 32, arrival: {tokens / medians['eager']:.0f} tokens/s")


def _softserve(bundle: Path, threads: int) -> Translate:
    translator = load_bundle(bundle, threads=threads)
    assert isinstance(translator, Translator)

    def run(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        options = SearchOptions(stop="full")
        queries = [SourceQuery(tuple(source), beam, options, _limit(source)) for source in sources]
        return [list(found[0].tokens) for found in translator.decoder.search(queries)]

    return run


def _ctranslate2(model: Path, precision: str, threads: int) -> Translate:
    translator = ctranslate2.Translator(
        str(model), device="cpu", compute_type=precision, inter_threads=1, intra_threads=threads
    )

    def run(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        texts = [spelled(source) for source in sources]
        results = translator.translate_batch(
            texts, beam_size=beam, max_batch_size=32, max_decoding_length=256, min_decoding_length=0
        )
        return [[int(token) for token in result.hypotheses[0] if token != END] for result in results]

    return run


def _eager(run: Path, data_dir: Path, threads: int) -> Translate:
    torch.set_num_threads(threads)
    task = load_trained(RunDirectory(run), data_dir, "cpu")
    assert isinstance(task, TranslationTask)

    def translate(sources: Sequence[Tokens], beam: int) -> list[Tokens]:
        assert beam == 1
        end = task.tokenizer.end_id
        lengths = torch.tensor([len(source) + 1 for source in sources])
        padded = pad([[*source, end] for source in sources], end)
        return task.model.greedy(padded, lengths, end_id=end, max_tokens=2 * int(lengths.max()) + 10)

    return translate


def _limit(source: Tokens) -> int:
    return 2 * len(source) + 10


def _cell(
    sides: Mapping[str, Side], sources: Sequence[Tokens], beam: int, batch: int, order: str, rounds: int
) -> tuple[dict[str, float], dict[str, list[Tokens]]]:
    """Return the median seconds of each side for all sentences, and its translations."""
    size = len(sources) if order == "sorted" else batch
    groups = [sources[first : first + size] for first in range(0, len(sources), size)]
    return interleaved(sides, dict.fromkeys(sides, groups), (beam,), rounds)


def _report(
    cell: str,
    tokenizer: SubwordTokenizer,
    medians: Mapping[str, float],
    results: Mapping[str, list[Tokens]],
    references: list[str],
) -> float:
    rates = [sum(len(tokens) + 1 for tokens in results[name]) / seconds for name, seconds in medians.items()]
    texts = [tokenizer.decode_batch(found) for found in results.values()]
    scores = [sacrebleu.corpus_bleu(found, [references]).score for found in texts]
    same = sum(a == b for a, b in zip(*results.values(), strict=True))
    cells = [cell, *(f"{rate:.0f}" for rate in rates), f"{rates[0] / rates[1]:.2f}"]
    print(f"| {' | '.join([*cells, *(f'{score:.2f}' for score in scores), f'{same}/{len(references)}'])} |", flush=True)
    return rates[0] / rates[1]


if __name__ == "__main__":
    tyro.cli(main)
