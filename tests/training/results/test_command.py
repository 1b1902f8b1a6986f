"""Tests of `softserve-train table`: rows that are missing, present, interrupted, diverged."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.test_cli import Result as Ended
from tests.training.test_cli import run_cli
from training.checkpoint import RunDirectory
from training.loop import Trainer
from training.results import command
from training.results.records import Result, read
from training.results.tables import Table

TableCommand = Callable[..., Ended]


@pytest.fixture
def run(table: Table, tiny_data_dir: Path, tmp_path: Path) -> TableCommand:
    """`softserve-train table toy` with all that it writes in `tmp_path`."""
    (tmp_path / "docs").mkdir()

    def call(*flags: object, name: str = "toy") -> Ended:
        places = ("--data-dir", tiny_data_dir, "--runs", tmp_path / "runs", "--results", tmp_path)
        return run_cli("table", name, *places, "--page", tmp_path / "docs" / "results.md", *flags)

    return call


def _results(tmp_path: Path) -> list[Result]:
    return read(tmp_path / "toy.jsonl")


def test_missing_rows_are_run_and_present_ones_are_not(
    run: TableCommand, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--seeds", 2, "--rows", "pow").code == 0
    ended = run()
    assert ended.code == 0
    assert "row pow, seed 2" not in ended.output
    results = _results(tmp_path)
    assert [(each.row, each.seed) for each in results] == [("pow", 2), ("lin", 1), ("pow", 1), ("lin", 2)]
    for each in results:
        assert each.status == "finished"
        assert [point.epoch for point in each.curve] == [1, 2]
        assert each.dev == min(point.metric for point in each.curve if point.metric is not None)
        assert each.test["perplexity"] > 1
        assert each.recipe["network"]["hidden_size"] == 8
        assert each.machine.processor
        run_directory = RunDirectory(tmp_path / "runs" / "table-toy" / f"{each.row}-{each.seed}")
        assert run_directory.recipe().seed == each.seed
        assert run_directory.best.is_file()
        assert not run_directory.last.is_file()
        assert run_directory.history()[-1].seconds == each.seconds

    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert "not run" not in page
    assert "| 2 of 2 |" in page
    assert (tmp_path / "docs" / "figures" / "results-toy.svg").is_file()

    monkeypatch.setattr(command, "run_row", None)
    assert "toy: no row is missing" in run().output


def test_the_metrics_are_those_of_evaluate(run: TableCommand, tiny_data_dir: Path, tmp_path: Path) -> None:
    run("--seeds", 1, "--rows", "lin")
    (result,) = _results(tmp_path)
    evaluated = run_cli("evaluate", tmp_path / "runs" / "table-toy" / "lin-1", "--data-dir", tiny_data_dir)
    assert f"toy-lin-1 on toy, test: perplexity {result.test['perplexity']:.4f}," in evaluated.output


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
    assert _results(tmp_path) == []

    assert "resuming at epoch 1 of 2, step 3" in run("--seeds", 1, "--rows", "lin").output
    (resumed,) = _results(tmp_path)
    assert steps == list(range(len(steps)))

    (tmp_path / "toy.jsonl").unlink()
    RunDirectory(tmp_path / "runs" / "table-toy" / "lin-1").clear()
    run("--seeds", 1, "--rows", "lin")
    (whole,) = _results(tmp_path)
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
    (result,) = _results(tmp_path)
    assert (result.status, result.reason, result.test, result.dev) == (status, reason, {}, None)
    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"| `lin` | {status} | 46.8 |" in page
    assert f"* `lin`, seed 1, {status} after 0 epochs: {reason}" in page

    assert "no row is missing" in run("--seeds", 1, "--rows", "lin").output
    assert "lin, seed 1: finished" in run("--seeds", 1, "--rows", "lin", "--retry").output
    assert [each.status for each in _results(tmp_path)] == [status, "finished"]
    assert status not in (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")


def test_a_row_of_an_earlier_definition_is_run_again(run: TableCommand, tmp_path: Path) -> None:
    run("--seeds", 1, "--rows", "lin")
    line = json.loads((tmp_path / "toy.jsonl").read_text(encoding="utf-8"))
    line["recipe"]["loop"]["epochs"] = 1
    (tmp_path / "toy.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    run("--only-page")
    assert "| `lin` | not run |" in (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert "lin, seed 1: finished" in run("--seeds", 1, "--rows", "lin").output


def test_what_a_table_does_not_have_is_an_error(run: TableCommand, tmp_path: Path) -> None:
    assert run(name="nine").code == "softserve-train: unknown table 'nine'; known tables: toy"
    assert run("--rows", "log").code == "softserve-train: rows: the table has lin, pow, not log"
    assert run("--seeds", 3).code == "softserve-train: seeds: the table has 1, 2, not 3"
    assert run("--threads", 0).code == "softserve-train: --threads must be at least 1, not 0"
    ended = run("--data-dir", tmp_path / "nowhere")
    assert ended.code not in (0, None)
    assert _results(tmp_path) == []


def test_tables_are_listed(table: Table, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.table(results=tmp_path) == 0
    assert capfd.readouterr().out.splitlines()[1:] == [
        "table\ttitle\tfinished\tdiverged or failed\tnot run",
        "toy\tKernels on a toy\t0\t0\t4",
    ]


def test_no_page_is_written_without_its_folder(table: Table, tmp_path: Path) -> None:
    assert command.table(only_page=True, results=tmp_path, page=tmp_path / "none" / "results.md") == 0
    assert not (tmp_path / "none").exists()
