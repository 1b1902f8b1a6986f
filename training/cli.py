"""`softserve-train`: run recipes, evaluate runs, export bundles."""

from pathlib import Path

import torch

from models.tokenization import WordTokenizer
from training.checkpoint import RunDirectory
from training.loop import Trainer
from training.recipe import load_recipe
from training.tasks.language_model import LanguageModelTask


def run(recipe: Path, data_dir: Path = Path("data"), runs: Path = Path("runs")) -> None:
    settings = load_recipe(recipe)
    directory = RunDirectory(runs / settings.name)
    if not directory.last.is_file():
        directory.start(settings)
        LanguageModelTask.build_tokenizer(settings, data_dir).save(directory.tokenizer)
    torch.manual_seed(settings.seed)
    tokenizer = WordTokenizer.from_file(directory.tokenizer)
    task = LanguageModelTask(settings, tokenizer, data_dir, torch.device("cpu"))
    Trainer(task, directory, settings.loop).fit()


if __name__ == "__main__":
    import sys
    run(Path(sys.argv[1]), Path(sys.argv[2]))
