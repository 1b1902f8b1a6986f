"""Tests of loading trained runs."""

import json
from pathlib import Path

import pytest

from training.recipe import Recipe
from training.run.directory import RunDirectory
from training.run.session import load_offering, load_trained


def test_a_run_is_loaded_for_evaluation(tiny_run: RunDirectory, tiny_data_dir: Path) -> None:
    task = load_trained(tiny_run, tiny_data_dir, "cpu")
    assert not task.model.training
    assert not any(parameter.requires_grad for parameter in task.model.parameters())
    best = min(evaluation["metric"] for evaluation in json.loads((tiny_run.path / "history.json").read_text()))
    assert task.evaluate(task.batches("dev")).value == pytest.approx(best, rel=1e-6)


def test_what_is_no_trained_run_is_said_to_be(tiny_recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing does not exist"):
        load_trained(RunDirectory(tmp_path / "nothing"))
    run = RunDirectory(tmp_path / "begun")
    run.start(tiny_recipe)
    with pytest.raises(FileNotFoundError, match=r"begun has no best[.]pt: its first epoch is not over"):
        load_trained(run)


def test_only_a_language_model_is_loaded_as_one(
    tiny_run: RunDirectory, pairs_run: RunDirectory, tiny_data_dir: Path
) -> None:
    assert load_offering(tiny_run, "next-word", tiny_data_dir, "cpu").metric == "perplexity"
    assert load_trained(pairs_run, tiny_data_dir, "cpu").metric == "BLEU"
    with pytest.raises(
        ValueError, match="numerals is a run of task 'translation', which does not offer the operation 'next-word'"
    ):
        load_offering(pairs_run, "next-word", tiny_data_dir, "cpu")
