"""Tests of the measurements on a GPU: results that are resumed, rows and parts that fail, the goals."""

import json
import time
from pathlib import Path

import pytest

from benchmarks.gpu.__main__ import main
from benchmarks.gpu.goals import GOALS, verdict
from benchmarks.gpu.results import Context, Result, Results, Unavailable
from benchmarks.gpu.steps import device_time


def context(path: Path, seconds: float = 60.0, **environment: str) -> Context:
    given = {"device": "a card", "commit": "abc", "small": "False", **environment}
    return Context(
        part="process",
        device="cpu",
        small=True,
        work=path,
        results=Results(path / "results.jsonl", given),
        deadline=time.monotonic() + seconds,
    )


@pytest.fixture(autouse=True)
def _one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checkout change while a test runs."""
    monkeypatch.setattr("benchmarks.gpu.__main__.commit", lambda: "abc")


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_are_measured_once_for_a_card_and_a_commit(tmp_path: Path) -> None:
    calls: list[str] = []

    def measured() -> dict[str, float]:
        calls.append("called")
        return {"per_second": 2.0}

    for environment in ({}, {}, {"commit": "def"}, {"device": "another card"}):
        assert context(tmp_path, **environment).measure("a row", measured)
    assert len(calls) == 3
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"part": "process", "row": "cut o')  # the process was killed
    assert context(tmp_path).measure("a row", measured)
    assert len(calls) == 3


def test_a_row_that_fails_does_not_stop_others_and_is_measured_again(tmp_path: Path) -> None:
    def failing() -> dict[str, float]:
        raise RuntimeError("out of memory")

    def missing() -> dict[str, float]:
        raise Unavailable("not installed: vllm")

    given = context(tmp_path)
    assert [given.measure(*each) for each in (("a", failing), ("b", missing), ("c", lambda: {"x": 1}))] == [
        False,
        False,
        True,
    ]
    found = given.results.read()
    assert [(found["process", row].status, found["process", row].reason) for row in "abc"] == [
        ("failed", "RuntimeError: out of memory"),
        ("unavailable", "not installed: vllm"),
        ("measured", ""),
    ]
    assert given.measure("a", lambda: {"x": 2})
    assert given.results.read()["process", "a"].values == {"x": 2}


def test_after_the_deadline_no_row_begins(tmp_path: Path) -> None:
    given = context(tmp_path, seconds=-1)
    assert not given.measure("late", lambda: pytest.fail("there is no time"))
    assert given.results.read()["process", "late"].status == "no time"


def test_a_part_that_fails_is_a_row_and_the_next_one_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small" / "text.txt").mkdir(parents=True)  # which the training part writes
    output, parts = tmp_path / "results.jsonl", ("training", "losses")
    assert main(device="cpu", output=output, small=True, work=tmp_path, parts=parts) == 1
    (failed,) = [line for line in lines(output) if line["status"] != "measured"]
    assert (failed["part"], failed["row"], failed["status"]) == ("training", "part", "failed")
    assert [line["row"] for line in lines(output) if line["part"] == "losses"] == ["float32", "bfloat16"]
    assert "* Training steps, part: failed; its process ended with status 1" in capfd.readouterr().out


def test_unknown_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="unknown part 'kernels': there are tests, losses"):
        main(device="cpu", output=tmp_path / "results.jsonl", parts=("kernels",), work=tmp_path)


def results(**values: dict[str, dict[str, float]]) -> dict[tuple[str, str], Result]:
    return {
        (part, row): Result(part=part, row=row, status="measured", values=found)
        for part, rows in values.items()
        for row, found in rows.items()
    }


def test_goals_are_met_missed_or_not_measured() -> None:
    found = results(
        http={
            "intents, classify, 32 a request, 16 connections": {"texts_per_second": 9_000.0},
            "intents, classify, 32 a request, 64 connections": {"texts_per_second": 12_000.0},
            "intents, classify, 1 a request, 256 connections": {"requests_per_second": 3_999.0},
            "minilm, classify, 32 a request, 64 connections": {"texts_per_second": 12_000.0},
            "de-en, translate, 1 a request, 64 connections": {"requests_per_second": 2_640.0},
            "bundled models, start": {"ready_seconds": 31.0, "first_ms": 3.0, "hundredth_ms": 2.0},
            "bert-base, classify, 32 a request, 256 connections": {"texts_per_second": 800.0},
        },
        servers={
            "minilm, 32 a request, 64 connections, LitServe": {"texts_per_second": 8_000.0},
            "minilm, 32 a request, 64 connections, Triton": {"texts_per_second": 10_001.0},
        },
        peers={
            "bert-base, batch 128, transformers, bfloat16, compiled": {"per_second": 1_000.0},
            "opus-mt, batch 256, Softserve": {"per_second": 900.0},
            "opus-mt, batch 128, CTranslate2, float16": {"per_second": 1_000.0},
        },
    )
    assert [verdict(goal, found, on_gpu=True) for goal in GOALS] == [
        "met: 12,000 texts/s",
        "**missed**: 3,999 requests/s",
        "**missed**: 1.20",
        "not measured",
        "met: 0.80",
        "**missed**: 0.90",
        "met: 2,640 requests/s",
        "**missed**: 31.00 s",
        "met: 1.50",
        "not measured",
        "not measured",
    ]
    assert {verdict(goal, found, on_gpu=False) for goal in GOALS} == {"not measured"}


def test_the_time_of_a_device_is_that_of_kernels_and_copies() -> None:
    events = [
        {"cat": "kernel", "dur": 1500},
        {"cat": "kernel", "dur": 500},
        {"cat": "gpu_memcpy", "dur": 250},
        {"cat": "cuda_runtime", "dur": 9000},
        {"name": "process_name"},
    ]
    assert device_time(events) == {"kernel": 2.0, "gpu_memcpy": 0.25}
