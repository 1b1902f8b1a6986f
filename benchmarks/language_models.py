"""Compare the perplexities of language models on one corpus, one vocabulary, one test split.

    python -m benchmarks.language_models runs/next-word runs/next-word-lin ... --bundle models/bundled/next-word/4 \
        --data-dir data

Uniform and a modified Kneser-Ney 5-gram are fitted here on exactly the training sentences of the first run. The last
column is of the distinct sentences of the test split, which repeats those that have several translations.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from models.store import load_bundle
from models.tasks.language_model import LanguageModel
from models.text.tokenization import WordTokenizer
from training.data.batching import SentenceBatches
from training.run.directory import RunDirectory
from training.run.session import load_offering
from training.tasks.language_model.kneser_ney import KneserNey
from training.tasks.language_model.perplexity import bundle_perplexity
from training.tasks.language_model.reading import split_texts
from training.tasks.language_model.settings import LanguageModelRecipe

_MEASURED = ("dev", "test", "distinct")


def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    data_dir: Path = Path("data"),
    bundle: Path | None = None,
    order: int = 5,
    kneser_ney_only: bool = False,
) -> None:
    """Print a Markdown table.

    Args:
        runs: Run directories that share data settings and vocabulary.
        data_dir: Directory that holds the corpora.
        bundle: An exported model of the same vocabulary.
        order: Order of the n-gram model.
        kneser_ney_only: Leave the runs out.
    """
    recipe, tokenizer = RunDirectory(runs[0]).recipe(), WordTokenizer.from_file(RunDirectory(runs[0]).tokenizer)
    if not isinstance(recipe, LanguageModelRecipe):
        raise ValueError(f"{runs[0]} is a run of task {recipe.task!r}, not of a language model")
    texts = {split: split_texts(recipe.data, split, data_dir) for split in ("train", "dev", "test")}
    texts["distinct"] = list(dict.fromkeys(texts["test"]))
    splits = {split: tokenizer.encode_batch(some) for split, some in texts.items()}
    print(f"{recipe.data.corpus}, V = {tokenizer.vocab_size}, {sum(map(len, splits['train']))} training words\n")
    print("| model | parameters | epochs | training | dev | test | distinct |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    uniform = f"{tokenizer.vocab_size:.1f}"
    print(f"| uniform | | | | {uniform} | {uniform} | {uniform} |")
    started = time.perf_counter()
    ngrams = KneserNey(splits["train"], vocab_size=tokenizer.vocab_size, end_id=tokenizer.end_id, order=order)
    seconds = time.perf_counter() - started
    values = " | ".join(f"{ngrams.perplexity(splits[split]):.2f}" for split in _MEASURED)
    print(f"| modified Kneser-Ney {order}-gram | | | {seconds:.1f} s | {values} |")
    for path in () if kneser_ney_only else runs:
        print(_row(RunDirectory(path), data_dir, splits), flush=True)
    if bundle is not None:
        model = load_bundle(bundle)
        assert isinstance(model, LanguageModel)
        values = " | ".join(f"{bundle_perplexity(model, texts[split]).value:.2f}" for split in _MEASURED)
        print(f"| `{model.manifest.name}`, version {model.manifest.version}, exported | | | | {values} |")


def _row(run: RunDirectory, data_dir: Path, splits: Mapping[str, Sequence[Sequence[int]]]) -> str:
    task = load_offering(run, "next-word", data_dir, "cpu")
    history = json.loads((run.path / "history.json").read_text())
    parameters = sum(parameter.numel() for parameter in task.model.parameters())
    distinct = SentenceBatches(splits["distinct"], end_id=task.tokenizer.end_id, batch_tokens=4096)
    measured = [task.evaluate(each).value for each in (task.batches("dev"), task.batches("test"), distinct)]
    assert math.isclose(measured[0], min(e["metric"] for e in history), rel_tol=1e-3)
    kernels = ", ".join(f"`{kernel.name}`" for kernel in task.model.output_layer.components())
    if task.recipe.output_layer.sparse_k is not None:
        kernels += f", sparse k = {task.recipe.output_layer.sparse_k}, perplexity of the plain softmax"
    minutes = history[-1]["seconds"] / 60
    values = " | ".join(f"{value:.2f}" for value in measured)
    return f"| {kernels} | {parameters / 1e6:.2f}M | {len(history)} | {minutes:.1f} min | {values} |"


if __name__ == "__main__":
    tyro.cli(main)
