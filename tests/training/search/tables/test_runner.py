"""Tests of the training of a row: its metrics, an interruption, rows that diverge or fail."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.cli.test_cli import run_cli
from tests.training.search.tables.conftest import TableCommand
from training.run.directory import RunDirectory
from training.run.loop import Trainer
from training.search.tables.definitions import Row, Table
from training.search.tables.records import read
from training.search.tables.runner import search_row


def test_the_metrics_are_those_of_evaluate(run: TableCommand, tiny_data_dir: Path, tmp_path: Path) -> None:
    run("--seeds", 1, "--rows", "lin")
    (result,) = read(tmp_path / "toy.jsonl")
    evaluated = run_cli("evaluate", tmp_path / "runs" / "table-toy" / "lin-1", "--data-dir", tiny_data_dir)
    assert f"toy-lin-1 on toy, test: perplexity {result.test['perplexity']:.4f}," in evaluated.output
    assert result.interval is None


def test_the_difference_from_the_first_row_has_an_interval(run: TableCommand, tmp_path: Path) -> None:
    run("--seeds", 1)
    lin, other = read(tmp_path / "toy.jsonl")
    assert other.interval is not None
    low, high = other.interval.low, other.interval.high
    difference = other.test["perplexity"] - lin.test["perplexity"]
    assert low < difference < high
    assert other.interval.reference == pytest.approx(lin.test["perplexity"])
    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"| {difference:+.1f} [{low:+.1f}, {high:+.1f}] over examples |" in page


def test_searches(
    searched: Table, run: TableCommand, tiny_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another definition, of another process, and one without a trial that came to its end."""
    places = tmp_path / "search", tiny_data_dir, torch.device("cpu"), lambda line: None
    first = search_row(searched, "lin", *places)
    assert [trial.values["loop.learning_rate"] for trial in first] == [1e-3, 2e-3]
    changed = replace(searched, rows={"lin": Row(grid={"loop.learning_rate": (2e-3, 4e-3)})})
    second = search_row(changed, "lin", *places)
    assert [trial.values["loop.learning_rate"] for trial in second] == [2e-3, 4e-3]
    assert second[0].metric == first[1].metric
    with monkeypatch.context() as patch:
        patch.setattr("training.search.tune.Search.run", lambda search, report: None)
        with pytest.raises(ValueError, match="another process trains trials of row 'pow'"):
            search_row(searched, "pow", *places)

    def diverged(trainer: Trainer, batch: Any) -> float:
        raise FloatingPointError("the loss is nan at step 1")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", diverged)
        output = run("--seeds", 1, "--rows", "lin").output
        assert "lin, seed 1: diverged all trials of the search failed or diverged" in output
    (result,) = read(tmp_path / "toy.jsonl")
    assert [trial.metric for trial in result.trials] == [None, None]
    assert "no row is missing" in run("--seeds", 1, "--rows", "lin").output
    assert "lin, seed 1: finished" in run("--seeds", 1, "--rows", "lin", "--retry").output
    _, again = read(tmp_path / "toy.jsonl")
    assert [trial.metric is None for trial in again.trials] == [False, False]


def test_an_interrupted_row_resumes(run: TableCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, steps = Trainer._step, list[int]()

    def interrupted(trainer: Trainer, batch: Any) -> float:
        steps.append(trainer.progress.step)
        if len(steps) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(trainer, batch)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    ended = run("--seeds", 1, "--rows", "lin")
    assert ended.code == 143
    assert "step 3 is saved in" in ended.output
    assert read(tmp_path / "toy.jsonl") == []

    assert "resuming at epoch 1 of 2, step 3" in run("--seeds", 1, "--rows", "lin").output
    (resumed,) = read(tmp_path / "toy.jsonl")
    assert steps == list(range(len(steps)))

    (tmp_path / "toy.jsonl").unlink()
    RunDirectory(tmp_path / "runs" / "table-toy" / "lin-1").clear()
    run("--seeds", 1, "--rows", "lin")
    (whole,) = read(tmp_path / "toy.jsonl")
    assert [point.metric for point in resumed.curve] == [point.metric for point in whole.curve]
    assert resumed.test == whole.test


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (FloatingPointError("the loss is nan at step 1"), "diverged", "the loss is nan at step 1"),
        (RuntimeError("out of memory\nTry less."), "failed", "out of memory"),
    ],
)
def test_rows_that_diverge_or_fail_stay_in_the_table(
    error: Exception, status: str, reason: str, run: TableCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(trainer: Trainer, batch: Any) -> float:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step)
        ended = run("--seeds", 1, "--rows", "lin")
    assert ended.code == 0
    assert f"lin, seed 1: {status} {reason}" in ended.output
    (result,) = read(tmp_path / "toy.jsonl")
    assert (result.status, result.reason, result.test, result.dev) == (status, reason, {}, None)
    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"| `lin` | {status} | 46.8 |" in page
    assert f"* `lin`, seed 1, {status} after 0 epochs: {reason}" in page

    assert "no row is missing" in run("--seeds", 1, "--rows", "lin").output
    assert "lin, seed 1: finished" in run("--seeds", 1, "--rows", "lin", "--retry").output
    assert [each.status for each in read(tmp_path / "toy.jsonl")] == [status, "finished"]
    assert status not in (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
