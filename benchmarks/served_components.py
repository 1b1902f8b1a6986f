"""Compare the time of `next-word` and `score` of a bundle with a cache with that of the same weights without it.

    python -m benchmarks.served_components --data-dir data

The network has the size of the recipe `ptb-cache` and the vocabulary of Penn Treebank, and is trained for one update:
time does not depend on the values of the weights. Texts are parts of the test set, eight at a time. Rounds of both
bundles alternate; values are medians of the CPU time for all eight texts, one thread.
"""

import functools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import tyro

from benchmarks.timing import medians_of
from models.store import load_bundle
from models.tasks.language_model import LanguageModel
from models.tasks.language_results import NextWords, Prefix, SentenceScore
from training.data.corpora import get_corpus
from training.recipe.loading import load_recipe
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.loop import Trainer
from training.tasks.language_model import LanguageModelTask
from training.tasks.language_model.settings import LanguageModelRecipe

_RECIPE = Path("training/recipes/ptb-cache.yaml")
_ROUNDS = 11
_MEASURED_LINES = 20
"""Lines of the validation and test splits that the bundles are measured on when they are exported."""


def _files(directory: Path, data_dir: Path) -> dict[str, str]:
    """Write the splits of Penn Treebank, those other than the training split short, and return their paths."""
    paths = {}
    for split in ("train", "dev", "test"):
        lines = list(get_corpus("ptb").texts(split, data_dir, "text"))
        kept = lines if split == "train" else lines[:_MEASURED_LINES]
        paths[split] = str(directory / f"{split}.txt")
        Path(paths[split]).write_text("\n".join(kept) + "\n", encoding="utf-8")
    return paths


def _bundles(directory: Path, data_dir: Path) -> dict[str, LanguageModel]:
    """Return the model without and with the cache, of one run."""
    content = load_recipe(_RECIPE).model_dump()
    kernels = content["output_layer"]["kernels"]
    content["data"] |= {"corpus": None, "files": _files(directory, data_dir)}
    content["loop"] |= {"max_steps": 1, "epochs": 1}
    content["output_layer"]["kernels"] = "lin"
    recipe = LanguageModelRecipe.model_validate(content)
    run = RunDirectory(directory / recipe.name)
    run.start(recipe)
    tokenizer = LanguageModelTask.build_tokenizer(recipe, data_dir)
    tokenizer.save(run.tokenizer)
    task = LanguageModelTask(recipe, tokenizer, data_dir, torch.device("cpu"))
    Trainer(task, run, recipe.loop).fit(lambda line: None)
    cached = [f"output_layer.kernels={json.dumps(kernels)}", "export.version=2"]
    bundles = {
        name: export_run(run, directory / "models", data_dir, overrides=overrides)
        for name, overrides in {"without": [], "cached": cached}.items()
    }
    return {each: load_bundle(bundle.path, threads=1) for each, bundle in bundles.items()}


def main(data_dir: Path = Path("data"), texts: int = 8) -> None:
    """Print a Markdown table.

    Args:
        data_dir: Directory that holds the corpora.
        texts: Texts that are computed at a time.
    """
    torch.set_num_threads(1)
    words = " ".join(get_corpus("ptb").texts("test", data_dir, "text")).split()
    print("| operation | words of a text | without, ms | with the cache, ms | ratio |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory:
        models = _bundles(Path(directory), data_dir)
        for count in (20, 100, 500):
            batch = [" ".join(words[place * count : (place + 1) * count]) for place in range(texts)]
            after = {id(model): [each.prefix for each in model.next_words(batch)] for model in models.values()}
            operations: dict[str, Callable[[LanguageModel], Any]] = {
                "`next-word`, a new context": functools.partial(_next_words, batch),
                "`next-word`, one word more": functools.partial(_one_more, after),
                "`score`": functools.partial(_scores, batch),
            }
            for name, compute in operations.items():
                print(_compared(f"{name} | {count}", models, compute), flush=True)


def _next_words(texts: list[str], model: LanguageModel) -> list[NextWords]:
    return model.next_words(texts)


def _one_more(after: dict[int, list[Prefix]], model: LanguageModel) -> list[NextWords]:
    return model.next_words(["the"] * len(after[id(model)]), after=after[id(model)])


def _scores(texts: list[str], model: LanguageModel) -> list[SentenceScore]:
    return model.score(texts)


def _compared(operation: str, models: dict[str, LanguageModel], compute: Callable[[LanguageModel], Any]) -> str:
    """Return a row of the table, from the operation and its text on."""
    calls = {name: functools.partial(compute, model) for name, model in models.items()}
    found = medians_of(calls, _ROUNDS, clock=time.process_time)
    without, cached = (1000 * found[name] for name in ("without", "cached"))
    return f"| {operation} | {without:.2f} | {cached:.2f} | {cached / without:.2f} |"


if __name__ == "__main__":
    tyro.cli(main)
