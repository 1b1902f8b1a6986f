"""Which class trains which recipe."""

from pathlib import Path

import torch

from models.tokenization import SubwordTokenizer, WordTokenizer
from training.recipe import AnyRecipe, LanguageModelRecipe
from training.tasks.language_model import LanguageModelTask
from training.tasks.translation import TranslationTask

__all__ = ["AnyTask", "build_tokenizer", "open_task"]

AnyTask = LanguageModelTask | TranslationTask


def build_tokenizer(recipe: AnyRecipe, data_dir: Path) -> WordTokenizer | SubwordTokenizer:
    """The vocabulary of the recipe's training split."""
    if isinstance(recipe, LanguageModelRecipe):
        return LanguageModelTask.build_tokenizer(recipe, data_dir)
    return TranslationTask.build_tokenizer(recipe, data_dir)


def open_task(recipe: AnyRecipe, tokenizer: Path, data_dir: Path, device: torch.device) -> AnyTask:
    """The task of a recipe with fresh parameters and the vocabulary in a file."""
    if isinstance(recipe, LanguageModelRecipe):
        return LanguageModelTask(recipe, WordTokenizer.from_file(tokenizer), data_dir, device)
    return TranslationTask(recipe, SubwordTokenizer.from_file(tokenizer), data_dir, device)
