"""Compare the perplexities of language models on one corpus, one vocabulary, one test split.

    python -m benchmarks.language_models runs/next-word runs/next-word-lin ... --data-dir data

Uniform and a modified Kneser-Ney 5-gram are fitted here on exactly the training sentences of the first run.
"""

import json
import math
import time
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks.kneser_ney import KneserNey
from models.text.tokenization import WordTokenizer
from training.checkpoint import RunDirectory
from training.tasks.language_model.reading import split_texts
from training.tasks.language_model.settings import LanguageModelRecipe
from training.trained import load_offering


def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    data_dir: Path = Path("data"),
    order: int = 5,
    kneser_ney_only: bool = False,
) -> None:
    """Print a Markdown table.

    Args:
        runs: Run directories that share data settings and vocabulary.
        data_dir: Directory that holds the corpora.
        order: Order of the n-gram model.
        kneser_ney_only: Leave the runs out.
    """
    recipe, tokenizer = RunDirectory(runs[0]).recipe(), WordTokenizer.from_file(RunDirectory(runs[0]).tokenizer)
    if not isinstance(recipe, LanguageModelRecipe):
        raise ValueError(f"{runs[0]} is a run of task {recipe.task!r}, not of a language model")
    splits = {s: tokenizer.encode_batch(split_texts(recipe.data, s, data_dir)) for s in ("train", "dev", "test")}
    print(f"{recipe.data.corpus}, V = {tokenizer.vocab_size}, {sum(map(len, splits['train']))} training words\n")
    print("| model | parameters | epochs | training | dev | test |\n| --- | --- | --- | --- | --- | --- |")
    uniform = f"{tokenizer.vocab_size:.1f}"
    print(f"| uniform | | | | {uniform} | {uniform} |")
    started = time.perf_counter()
    ngrams = KneserNey(splits["train"], vocab_size=tokenizer.vocab_size, end_id=tokenizer.end_id, order=order)
    seconds = time.perf_counter() - started
    dev, test = (ngrams.perplexity(splits[split]) for split in ("dev", "test"))
    print(f"| modified Kneser-Ney {order}-gram | | | {seconds:.1f} s | {dev:.2f} | {test:.2f} |")
    for path in () if kneser_ney_only else runs:
        print(_row(RunDirectory(path), data_dir), flush=True)


def _row(run: RunDirectory, data_dir: Path) -> str:
    task = load_offering(run, "next-word", data_dir, "cpu")
    history = json.loads((run.path / "history.json").read_text())
    parameters = sum(parameter.numel() for parameter in task.model.parameters())
    dev, test = (task.evaluate(task.batches(split)).value for split in ("dev", "test"))
    assert math.isclose(dev, min(e["metric"] for e in history), rel_tol=1e-3)
    kernels = ", ".join(f"`{kernel.name}`" for kernel in task.model.output_layer.components())
    if task.recipe.output_layer.sparse_k is not None:
        kernels += f", sparse k = {task.recipe.output_layer.sparse_k}, perplexity of the plain softmax"
    minutes = history[-1]["seconds"] / 60
    return f"| {kernels} | {parameters / 1e6:.2f}M | {len(history)} | {minutes:.1f} min | {dev:.2f} | {test:.2f} |"


if __name__ == "__main__":
    tyro.cli(main)
