"""Tests of training sessions that are not those of the command `run`, see test_cli.py."""

from pathlib import Path

import pytest
import torch

from training.recipe import Recipe, RecipeError
from training.run.directory import RunDirectory
from training.run.locking import only_session
from training.run.session import train, use_threads

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


def test_two_processes_do_not_train_in_one_directory(short: Recipe, tiny_data_dir: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "toy")
    with only_session(run.path), pytest.raises(ValueError, match=f"another process trains in {run.path}"):
        train(short, run, tiny_data_dir, CPU)
    assert list(tmp_path.iterdir()) == []
    train(short, run, tiny_data_dir, CPU, stop_after=1)
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_what_cannot_be_trained_does_not_remove_the_run_before(
    short: Recipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "toy")
    train(short, run, tiny_data_dir, CPU, stop_after=1)
    float16 = short.model_copy(update={"loop": short.loop.model_copy(update={"precision": "float16"})})
    with pytest.raises(ValueError, match="float16 needs a GPU"):
        train(float16, run, tiny_data_dir, CPU, restart=True)
    assert run.last.is_file()
    assert run.recipe() == short


def test_threads_are_checked() -> None:
    use_threads(None)
    with pytest.raises(ValueError, match="--threads must be at least 1, not 0"):
        use_threads(0)
