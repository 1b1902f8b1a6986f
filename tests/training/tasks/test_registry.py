"""Tests of which class trains which recipe."""

from pathlib import Path

import torch

from models.tokenization import SubwordTokenizer, WordTokenizer
from training.recipe import Recipe, TranslationRecipe
from training.tasks.language_model import LanguageModelTask
from training.tasks.registry import build_tokenizer, open_task
from training.tasks.translation import TranslationTask

CPU = torch.device("cpu")


def test_a_language_model_has_words(tiny_recipe: Recipe, tiny_data_dir: Path, tmp_path: Path) -> None:
    tokenizer = build_tokenizer(tiny_recipe, tiny_data_dir)
    assert isinstance(tokenizer, WordTokenizer)
    tokenizer.save(tmp_path / "tokenizer.json")
    task = open_task(tiny_recipe, tmp_path / "tokenizer.json", tiny_data_dir, CPU)
    assert isinstance(task, LanguageModelTask)
    assert task.tokenizer.vocab_size == tokenizer.vocab_size


def test_a_translator_has_subwords(pairs_recipe: TranslationRecipe, tiny_data_dir: Path, tmp_path: Path) -> None:
    tokenizer = build_tokenizer(pairs_recipe, tiny_data_dir)
    assert isinstance(tokenizer, SubwordTokenizer)
    tokenizer.save(tmp_path / "tokenizer.json")
    task = open_task(pairs_recipe, tmp_path / "tokenizer.json", tiny_data_dir, CPU)
    assert isinstance(task, TranslationTask)
    assert task.recipe == pairs_recipe
    assert task.model.output_layer.weight.shape[0] == tokenizer.vocab_size
