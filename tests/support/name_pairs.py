"""Translate sentences with made-up names, of which those of the test split occur in no training sentence.

Shared by the tests of copying and `benchmarks.copying`.
"""

import random
from pathlib import Path
from typing import Any

import torch

from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.loop import Trainer
from training.run.session import start_run
from training.tasks.translation import TranslationTask
from training.tasks.translation.settings import TranslationRecipe

__all__ = ["name_recipe", "name_recipe_content", "right_translations", "train_names", "write_name_pairs"]

_SIZES = {"train": 400, "dev": 20, "test": 60}
_PATTERNS = (
    ("{} wohnt in {}", "{} lives in {}"),
    ("{} kennt {} gut", "{} knows {} well"),
    ("heute ruft {} an", "today {} calls"),
    ("wo ist {}", "where is {}"),
)


def _name(generator: random.Random) -> str:
    syllables = (generator.choice("bdfgklmnprstvz") + generator.choice("aeiou") for _ in range(3))
    return "".join(syllables).capitalize()


def _pair(generator: random.Random) -> str:
    german, english = generator.choice(_PATTERNS)
    names = [_name(generator) for _ in range(german.count("{}"))]
    return f"{german.format(*names)}\t{english.format(*names)}"


def write_name_pairs(directory: Path) -> None:
    """Write `train.tsv`, `dev.tsv` and `test.tsv`."""
    for seed, (split, count) in enumerate(_SIZES.items()):
        generator = random.Random(seed)
        lines = [_pair(generator) for _ in range(count)]
        (directory / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def name_recipe_content(kernels: Any = "lin", **fields: Any) -> dict[str, Any]:
    """Return the recipe of a small Transformer with these kernels; `fields` replace sections."""
    network = {"hidden_size": 32, "inner_size": 64, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    files = {split: f"{split}.tsv" for split in _SIZES}
    return {
        "name": "names",
        "task": "translation",
        "data": {"files": files, "source": "de", "target": "en", "vocab_size": 310, "batch_tokens": 512},
        "network": {**network, "dropout": 0.0},
        "output_layer": {"kernels": kernels, "label_smoothing": 0.05},
        "loop": {"epochs": 14, "learning_rate": 8e-3, "warmup_steps": 20, "precision": "float32", "patience": 14},
        "export": {"max_tokens": 60},
        **fields,
    }


def name_recipe(kernels: Any = "lin", **fields: Any) -> TranslationRecipe:
    """Return the recipe of `name_recipe_content`."""
    recipe = parse_recipe(name_recipe_content(kernels, **fields))
    assert isinstance(recipe, TranslationRecipe)
    return recipe


def train_names(recipe: TranslationRecipe, run: RunDirectory, data_dir: Path, seed: int = 0) -> TranslationTask:
    """Train a model from parameters that are drawn by the seed, and return it as it is after the last update."""
    start_run(recipe, run, data_dir)
    torch.manual_seed(seed)
    task = TranslationTask.open(recipe, run, data_dir, torch.device("cpu"))
    Trainer(task, run, recipe.loop).fit(lambda line: None)
    return task


def right_translations(task: TranslationTask) -> float:
    """Return the fraction of test sentences whose greedy translation is the reference, with all names."""
    outputs, references = task.outputs_and_references(task.batches("test"))
    return sum(output == right for output, (right,) in zip(outputs, references, strict=True)) / len(outputs)
