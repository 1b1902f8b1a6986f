"""Tests of runs that continue with a changed recipe, and of an edited recipe that is not used."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.cli import test_cli
from tests.training.cli.test_cli import RECIPE, Train, _written, run_cli
from training.recipe import RecipeError
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.resumption import continued

recipe, train = test_cli.recipe, test_cli.train  # fixtures


def _started(path: Path, epochs: int = 0, **loop: Any) -> RunDirectory:
    """A run directory of a recipe that was trained for some epochs."""
    run = RunDirectory(path)
    run.start(parse_recipe({**RECIPE, "loop": {"epochs": 4, **loop}}))
    if epochs:
        (path / "history.json").write_text(json.dumps([{"epoch": 1 + n} for n in range(epochs)]), encoding="utf-8")
    return run


def _wanted(**loop: Any) -> Any:
    return parse_recipe({**RECIPE, "loop": {"epochs": 4, **loop}})


def test_the_decay_stays_that_of_the_first_epochs(tmp_path: Path) -> None:
    run = _started(tmp_path)
    twice, lines = continued(run, _wanted(epochs=9))
    assert (twice.loop.epochs, twice.loop.schedule_epochs) == (9, 4)
    assert len(lines) == 2
    run.write_recipe(twice)
    assert continued(run, _wanted(epochs=9)) == (twice, [])
    again, _ = continued(run, _wanted(epochs=4))
    assert (again.loop.epochs, again.loop.schedule_epochs) == (4, 4)


def test_a_schedule_without_an_end_has_no_note(tmp_path: Path) -> None:
    run = _started(tmp_path, schedule="inverse-sqrt")
    recipe, lines = continued(run, _wanted(epochs=9, schedule="inverse-sqrt"))
    assert recipe.loop.schedule_epochs is None
    assert lines == [f"{tmp_path}: loop.epochs was 4, is 9"]


def test_what_has_no_influence_on_the_weights_is_taken_over(tmp_path: Path) -> None:
    wanted = _wanted(patience=5, checkpoint_minutes=1.0).model_copy(
        update={"export": _wanted().export.model_copy(update={"version": 3})}
    )
    recipe, lines = continued(_started(tmp_path), wanted)
    assert recipe == wanted
    assert [line.partition(": ")[2] for line in lines] == [
        "loop.patience was 3, is 5",
        "loop.checkpoint_minutes was 5.0, is 1.0",
        "export.version was 1, is 3",
    ]


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ({"epochs": 2}, "loop.epochs was 4, is 2"),
        ({"patience": 2}, "loop.patience was 3, is 2"),
        ({"schedule_epochs": 9}, "loop.schedule_epochs was None, is 9"),
        ({"epochs": 9, "learning_rate": 1.0}, "loop.epochs was 4, is 9; loop.learning_rate was 0.002, is 1.0"),
    ],
)
def test_other_changes_are_refused(loop: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--restart starts it over") as error:
        continued(_started(tmp_path, epochs=3), _wanted(**loop))
    assert said in str(error.value)


def test_more_epochs_continue_a_finished_run(train: Train, recipe: Path, tiny_data_dir: Path, tmp_path: Path) -> None:
    """It is then exactly the run that the recipe in its directory describes."""
    train(recipe)
    more = train(recipe, "--set", "loop.epochs=3")
    assert more.code == 0
    assert "loop.epochs was 2, is 3" in more.output
    assert "the learning rate falls over 2 epochs, as the run began, and then stays at 0.0002" in more.output
    assert "resuming at epoch 3 of 3" in more.output
    assert "little: loop" not in train(recipe, "--set", "loop.epochs=3").output
    runs, whole = tmp_path / "runs" / "little", tmp_path / "whole"
    assert RunDirectory(runs).recipe().loop.schedule_epochs == 2
    assert run_cli("run", runs / "recipe.yaml", "--data-dir", tiny_data_dir, "--runs", whole).code == 0
    first, second = (RunDirectory(path) for path in (runs, whole / "little"))
    both = [torch.load(run.last, weights_only=True) for run in (first, second)]
    assert all(torch.equal(value, both[1]["model"][name]) for name, value in both[0]["model"].items())
    assert first.trained_epochs() == second.trained_epochs() == 3


def test_an_edited_recipe_that_is_not_used_is_named(
    train: Train, recipe: Path, tiny_data_dir: Path, tmp_path: Path
) -> None:
    train(recipe)
    evaluate = ("evaluate", tmp_path / "runs" / "little", "--data-dir", tiny_data_dir)
    assert "has changed" not in run_cli(*evaluate).output
    _written(recipe, loop={**RECIPE["loop"], "learning_rate": 0.5})
    said = run_cli(*evaluate).output
    assert f"{recipe} has changed since `run` and is not used" in said
    assert "loop.learning_rate was 0.02, is 0.5" in said
