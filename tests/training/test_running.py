"""Tests of training sessions that are not those of the command `run`, see test_cli.py."""

from pathlib import Path

import pytest
import torch

from training.checkpoint import RunDirectory
from training.recipe import Recipe, RecipeError
from training.running import train, use_threads

CPU = torch.device("cpu")


@pytest.fixture
def short(tiny_recipe: Recipe) -> Recipe:
    loop = tiny_recipe.loop.model_copy(update={"epochs": 1})
    return tiny_recipe.model_copy(update={"loop": loop, "data": tiny_recipe.data.model_copy(update={"limit": 30})})


def test_a_session_continues_or_starts_over(
    short: Recipe, tiny_data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path / "toy")
    assert train(short, run, tiny_data_dir, CPU, stop_after=1).step == 1
    assert run.command() is None
    progress = train(short, run, tiny_data_dir, CPU, command=(tmp_path / "recipe.yaml", ["seed=1"]))
    assert "resuming at epoch 1 of 1, step 1" in capsys.readouterr().out
    assert run.history() == progress.history
    assert run.command() == (str(tmp_path / "recipe.yaml"), ["seed=1"])

    other = short.model_copy(update={"seed": 2})
    with pytest.raises(RecipeError, match="was started with another recipe"):
        train(other, run, tiny_data_dir, CPU)
    assert train(other, run, tiny_data_dir, CPU, restart=True).epoch == 1
    assert run.recipe().seed == 2


def test_threads_are_checked() -> None:
    use_threads(None)
    with pytest.raises(ValueError, match="--threads must be at least 1, not 0"):
        use_threads(0)
