"""Tests of which class trains which recipe."""

from pathlib import Path

import pytest
import torch

from models.text.tokenization import SubwordTokenizer, WordTokenizer
from training.recipe import Recipe
from training.run.directory import RunDirectory
from training.run.session import open_task, start_run
from training.tasks.language_model import LanguageModelTask
from training.tasks.translation import TranslationTask
from training.tasks.translation.settings import TranslationRecipe

CPU = torch.device("cpu")


def test_a_language_model_has_words(tiny_recipe: Recipe, tiny_data_dir: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    start_run(tiny_recipe, run, tiny_data_dir)
    task = open_task(tiny_recipe, run, tiny_data_dir, CPU)
    assert isinstance(task, LanguageModelTask)
    assert isinstance(task.tokenizer, WordTokenizer)
    assert run.recipe() == tiny_recipe


def test_a_translator_has_subwords(pairs_recipe: TranslationRecipe, tiny_data_dir: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    start_run(pairs_recipe, run, tiny_data_dir)
    task = open_task(pairs_recipe, run, tiny_data_dir, CPU)
    assert isinstance(task, TranslationTask)
    assert isinstance(task.tokenizer, SubwordTokenizer)
    assert task.recipe == pairs_recipe
    assert task.model.output_layer.weight.shape[0] == task.tokenizer.vocab_size


def test_a_new_run_keeps_nothing_of_the_old_one_once_it_can_begin(
    tiny_recipe: Recipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    start_run(tiny_recipe, run, tiny_data_dir)
    run.last.write_bytes(b"old")
    with pytest.raises(FileNotFoundError):
        start_run(tiny_recipe, run, tmp_path)
    assert run.last.is_file()
    start_run(tiny_recipe, run, tiny_data_dir)
    assert not run.last.exists()
