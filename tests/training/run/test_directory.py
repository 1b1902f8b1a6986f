"""Tests of run directories."""

import json
import math
import re
import subprocess
from pathlib import Path

import pytest
import torch

from training.recipe import Recipe
from training.run import directory
from training.run.directory import Evaluation, Progress, RunDirectory, git_revision


def _evaluation(epoch: int, metric: float) -> Evaluation:
    return Evaluation(epoch=epoch, step=10 * epoch, train_loss=1.0, metric=metric, seconds=2.5 * epoch)


def test_a_run_starts_with_its_recipe(tiny_recipe: Recipe, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs" / "toy")
    run.start(tiny_recipe)
    assert run.recipe() == tiny_recipe
    assert not run.last.exists()
    assert not run.best.exists()


def test_what_sessions_train_with_is_noted(
    tiny_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path / "toy")
    run.start(tiny_recipe)
    assert run.note_session("float32") == []
    first = {"git_revision": git_revision(), "torch": torch.__version__, "precision": "float32"}
    assert run.provenance() == first
    assert run.note_session("float32") == []
    assert run.provenance() == first
    monkeypatch.setattr(directory, "git_revision", lambda: "0123456789ab")
    assert len(run.note_session("bfloat16")) == 2
    assert run.note_session("bfloat16") == []
    assert run.provenance()["git_revision"] == f"{first['git_revision']}, 0123456789ab"
    (line,) = run.note_session("float32")
    assert line == "precision was bfloat16, is float32: the run is not exactly one of a single session"
    assert run.provenance()["precision"] == "float32, bfloat16, float32"


def test_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a run directory"):
        RunDirectory(tmp_path).recipe()


def test_clear_removes_a_run_and_nothing_beside_it(tiny_recipe: Recipe, tmp_path: Path) -> None:
    run, other = RunDirectory(tmp_path / "toy"), RunDirectory(tmp_path / "other")
    for each in (run, other):
        each.start(tiny_recipe)
    run.clear()
    run.clear()  # nothing to remove is no error
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize("file", ["manifest.json", "1/manifest.json", "study.db"])
def test_clear_removes_nothing_but_runs(file: str, tmp_path: Path) -> None:
    path = tmp_path / "intents" / file
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with pytest.raises(FileExistsError, match=r"intents is there and holds no run: give the recipe another name"):
        RunDirectory(tmp_path / "intents").clear()
    assert path.read_text() == "precious"


def test_history_is_written_for_people_and_export(tmp_path: Path) -> None:
    run, progress = RunDirectory(tmp_path), Progress(history=[_evaluation(1, 9.0), _evaluation(2, 8.0)])
    run.write_history(progress)
    history = json.loads((tmp_path / "history.json").read_text(encoding="utf-8"))
    assert history[1] == {
        "epoch": 2,
        "step": 20,
        "train_loss": 1.0,
        "metric": 8.0,
        "seconds": 5.0,
        "processor_seconds": 0.0,
    }
    assert run.training_seconds() == 5.0


# ---- progress ---------------------------------------------------------------------------------------------


def test_best_is_the_lowest_metric_and_the_last_of_equals() -> None:
    progress = Progress(history=[_evaluation(i, metric) for i, metric in enumerate([5.0, 4.0, 6.0, 4.0, 5.0], 1)])
    assert progress.best is progress.history[3]
    assert progress.evaluations_since_improvement() == 3, "an equal metric is no improvement"


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("metrics", [[5.0, math.nan], [math.nan, 5.0]])
def test_no_number_is_worse_than_nan(metrics: list[float], maximize: bool) -> None:
    progress = Progress(maximize=maximize, history=[_evaluation(i, metric) for i, metric in enumerate(metrics, 1)])
    assert progress.best is not None
    assert progress.best.metric == 5.0


def test_evaluations_that_are_all_nan_are_none_that_improved() -> None:
    progress = Progress(history=[_evaluation(epoch, math.nan) for epoch in (1, 2, 3)])
    assert progress.evaluations_since_improvement() == 3


def test_before_the_first_evaluation_nothing_is_best() -> None:
    assert Progress().best is None
    assert Progress().evaluations_since_improvement() == 0


def test_best_is_the_highest_metric_where_more_is_better() -> None:
    history = [_evaluation(i, metric) for i, metric in enumerate([5.0, 7.0, 6.0, 7.0, 1.0], 1)]
    progress = Progress(maximize=True, history=history)
    assert progress.best is progress.history[3]
    assert progress.evaluations_since_improvement() == 3


# ---- git --------------------------------------------------------------------------------------------------


def test_git_revision_in_a_checkout_is_a_commit() -> None:
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?|unknown", git_revision())


def test_git_revision_outside_a_checkout_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "__file__", str(tmp_path / "run_directory.py"))
    assert git_revision() == "unknown"


def test_results_of_tables_may_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "training" / "run_directory.py", tmp_path / "training" / "results" / "toy.jsonl"]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("1\n", encoding="utf-8")
    identity = ["-c", "user.name=Name", "-c", "user.email=name@example.org"]
    for call in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "First", "--no-verify"]):
        subprocess.run(["git", *call], cwd=tmp_path, check=True)
    monkeypatch.setattr(directory, "__file__", str(files[0]))
    commit = git_revision()
    assert re.fullmatch(r"[0-9a-f]{12}", commit)
    files[1].write_text("2\n", encoding="utf-8")
    assert git_revision() == commit
    files[0].write_text("2\n", encoding="utf-8")
    assert git_revision() == f"{commit}-dirty"


def test_git_revision_without_git_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_revision() == "unknown"
