"""Compare the throughput of a text classifier with unsorted batches in onnxruntime and with transformers.

    python -m benchmarks.classification runs/intents --data-dir data

Needs `pip install transformers`, and a run that started from a pretrained encoder. Every cell runs all sides once a
round, each in a process of its own; printed are medians over rounds of texts/s, tokenization included, and ratios.
`naive` runs the same ONNX graph on texts in arrival order, padded to the longest of each batch; `transformers` is the
reference implementation in eager mode. Texts are those of the run's test split, some of them joined to long ones.
"""

import platform
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
import torch
import tyro

from benchmarks.sides import interleaved, side
from models.store import load_bundle
from models.tasks.text_classification import Classifier
from models.text.padding import padded
from training.networks.pretrained import encoder_directory
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.session import load_trained
from training.tasks.text_classification import TextClassificationTask
from training.tasks.text_classification.reading import read_labelled

Classify = Callable[[Sequence[str]], list[str]]
"""A function of texts that returns their most probable labels."""

_LONG_WORDS = 40, 80


def main(
    run: Annotated[Path, tyro.conf.Positional],
    data_dir: Path = Path("data"),
    texts: int = 512,
    long_share: float = 0.02,
    rounds: int = 5,
    threads: int = 2,
) -> None:
    """Print a Markdown table.

    Args:
        run: Run directory of a classifier.
        data_dir: Directory that holds the corpora.
        texts: Texts per round.
        long_share: Fraction of texts that have 40 to 80 words.
        rounds: Rounds of each cell, after one to warm up.
        threads: Threads of each side.
    """
    task = load_trained(RunDirectory(run), data_dir, "cpu")
    assert isinstance(task, TextClassificationTask)
    mixed = _mixed(task, texts, long_share)
    words = [len(text.split()) for text in mixed]
    print(
        f"{run.name}: {texts} texts of {np.mean(words):.1f} words, {sum(w >= _LONG_WORDS[0] for w in words)} long; "
        f"{threads} threads, onnxruntime {onnxruntime.__version__}, torch {torch.__version__}, {platform.machine()}\n"
    )
    print("| precision | batch | Softserve | naive | transformers | x naive | x transformers | same labels |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        eager = stack.enter_context(side(_transformers, task.recipe.network.pretrained, threads))
        for precision, quantization in (("float32", "none"), ("int8", "int8")):
            settings = (f"export.quantization={quantization}", "export.torchscript=false")
            bundle = export_run(RunDirectory(run), Path(directory) / precision, data_dir, overrides=settings).path
            sides = {
                "Softserve": stack.enter_context(side(_softserve, bundle, threads)),
                "naive": stack.enter_context(side(_naive, bundle, threads)),
                "transformers": eager,
            }
            for batch in (1, 32):
                ones = [mixed[first : first + batch] for first in range(0, len(mixed), batch)]
                groups = {"Softserve": ones if batch == 1 else [mixed], "naive": ones, "transformers": ones}
                medians, results = interleaved(sides, groups, (), rounds)
                rates = [texts / medians[name] for name in sides]
                same = sum(a == b for a, b in zip(results["Softserve"], results["naive"], strict=True))
                cells = [f"{rate:.0f}" for rate in rates] + [f"{rates[0] / rate:.2f}" for rate in rates[1:]]
                print(f"| {precision} | {batch} | {' | '.join(cells)} | {same}/{texts} |", flush=True)


def _mixed(task: TextClassificationTask, count: int, long_share: float) -> list[str]:
    """Return test texts in random order, a fraction of them long."""
    generator = random.Random(0)
    short = [each for each in _texts(task) if len(each.split()) < _LONG_WORDS[0]]
    mixed = generator.sample(short, count)
    for index in generator.sample(range(count), round(long_share * count)):
        wanted = generator.randint(*_LONG_WORDS)
        mixed[index] = " ".join(" ".join(generator.choices(short, k=wanted)).split()[:wanted])
    return mixed


def _texts(task: TextClassificationTask) -> list[str]:
    return [each.text for each in read_labelled(task.recipe.data, "test", task.data_dir)]


def _softserve(bundle: Path, threads: int) -> Classify:
    model = load_bundle(bundle, threads=threads)
    assert isinstance(model, Classifier)
    return lambda texts: [result.labels[0].label for result in model.classify(texts, 1, truncate=True)]


def _naive(bundle: Path, threads: int) -> Classify:
    model = load_bundle(bundle, threads=threads)
    assert isinstance(model, Classifier)

    def classify(texts: Sequence[str]) -> list[str]:
        inputs = padded([model.query(text, 1, truncate=True).tokens for text in texts])
        _, classes = model.backend.run("classify", {**inputs, "k": np.array(1)}, ["log_probabilities", "classes"])
        return [model.labels[int(row[0])] for row in classes]

    return classify


def _transformers(pretrained: str | None, threads: int) -> Classify:
    """Return the pretrained encoder with an untrained head, whose labels mean nothing: only its time is measured."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    assert pretrained is not None
    torch.set_num_threads(threads)
    directory = encoder_directory(pretrained)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForSequenceClassification.from_pretrained(directory, num_labels=150).eval()

    def classify(texts: Sequence[str]) -> list[str]:
        with torch.inference_mode():
            inputs = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
            return [str(number) for number in model(**inputs).logits.argmax(1).tolist()]

    return classify


if __name__ == "__main__":
    tyro.cli(main)
