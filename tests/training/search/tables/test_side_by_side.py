"""Tests of rows that processes of their own train, several at a time and within a time."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.training.cli.test_cli import RECIPE, run_cli
from training.search.tables.definitions import Row, Table
from training.search.tables.records import Result, append, read
from training.search.tables.runner import Places
from training.search.tables.schedule import Job
from training.search.tables.side_by_side import Limits, train_rows


@pytest.fixture
def of_files(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """The table `toy` on a text file, which other processes read as well."""
    generator = random.Random(0)
    lines = [" ".join(generator.choices("abcdefgh", k=6)) for _ in range(200)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    recipe = {**RECIPE, "data": {"files": {"train": "text.txt"}, "min_count": 1, "batch_tokens": 128}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    rows = {**table.rows, "wrong": Row(overrides=("data.files.train=missing.txt",))}
    made = replace(table, recipe=str(tmp_path / "own.yaml"), overrides=(), rows=rows, seeds=(1,))
    for module in ("training.search.tables.definitions", "training.cli.tables", "training.search.tables.page"):
        monkeypatch.setattr(f"{module}.TABLES", {"toy": made})
    return made


def test_rows_are_trained_side_by_side(of_files: Table, tmp_path: Path) -> None:
    places = ("--data-dir", tmp_path, "--runs", tmp_path / "runs", "--results", tmp_path)
    page = tmp_path / "results.md"
    ended = run_cli("table", "all", *places, "--page", page, "--jobs", 2, "--minutes", 5, "--device", "cpu")
    assert ended.code == 0, ended.output
    results = read(tmp_path / "toy.jsonl")
    assert {(each.row, each.status) for each in results} == {("lin", "finished"), ("pow", "finished")}
    assert all(each.processor_seconds is not None and each.processor_seconds > 0 for each in results)
    assert "row wrong, seed 1 ended with an error: " in ended.output
    assert "missing.txt" in ended.output
    assert "1 of 3 rows and seeds are left" in ended.output
    assert "pow, seed 1: finished perplexity" in ended.output
    assert "epoch 1" in (tmp_path / "runs" / "table-toy" / "lin-1.log").read_text(encoding="utf-8")
    assert "| 1 of 1 |" in page.read_text(encoding="utf-8")


def test_rows_for_which_the_time_is_too_short_are_not_started(
    of_files: Table, make: Callable[..., Result], tmp_path: Path
) -> None:
    places = Places(data_dir=tmp_path, runs=tmp_path / "runs", results=tmp_path)
    limits = Limits(processes=2, device="cpu", threads=1, seconds=30.0)
    jobs, said = [Job("toy", row, 1) for row in ("lin", "pow")], list[str]()
    expected = dict.fromkeys(jobs, 31.0)
    assert train_rows(jobs, {"toy": of_files}, expected, places, limits, said.append, lambda job: None) == jobs
    assert said == []


def test_an_unexpected_error_is_in_the_output_of_its_row(of_files: Table, tmp_path: Path) -> None:
    places = Places(data_dir=tmp_path, runs=tmp_path / "runs", results=tmp_path)
    job, said = Job("toy", "absent", 1), list[str]()
    limits = Limits(processes=1, device="cpu", threads=1)
    assert train_rows([job], {"toy": of_files}, {job: 1.0}, places, limits, said.append, lambda job: None) == [job]
    assert said[-1] == "toy: row absent, seed 1 ended with an error: KeyError: 'absent'"
    assert "Traceback" in (tmp_path / "runs" / "table-toy" / "absent-1.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--jobs", 0), "--jobs must be at least 1, not 0"),
        (("--minutes", 0), "--minutes must be positive, not 0"),
        (("--rows", "lin"), "--rows and --seeds are those of one table"),
    ],
)
def test_wrong_options_are_errors(of_files: Table, tmp_path: Path, options: tuple[object, ...], said: str) -> None:
    ended = run_cli("table", "all", "--results", tmp_path, "--page", tmp_path / "none" / "page.md", *options)
    assert ended.code == f"softserve-train: {said}"


def test_results_have_no_processor_time_where_versions_before_wrote_them(
    table: Table, make: Callable[..., Result], tmp_path: Path
) -> None:
    append(tmp_path / "toy.jsonl", make("lin", 1, 40.0))
    assert read(tmp_path / "toy.jsonl")[0].processor_seconds is None
