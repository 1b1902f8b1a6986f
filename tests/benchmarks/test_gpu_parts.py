"""All parts of the measurements on a GPU, on the CPU with tiny models."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.__main__ import main
from benchmarks.gpu.parts import PARTS

OPTIONAL = ("LitServe", "Infinity", "Triton", "vLLM, pooling")
"""Servers that need not be installed."""


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(autouse=True)
def _one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checkout change while a test runs."""
    monkeypatch.setattr("benchmarks.gpu.__main__.commit", lambda: "abc")


def test_every_part_runs_in_small_and_a_second_run_measures_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "results.jsonl"
    assert main(minutes=30, device="cpu", output=output, small=True, work=tmp_path) == 0
    printed, found = capfd.readouterr().out, _lines(output)
    assert {line["part"] for line in found} == set(PARTS)
    without = [line for line in found if line["status"] != "measured"]
    assert all(str(line["row"]).endswith(OPTIONAL) and line["status"] == "unavailable" for line in without), without
    values = {(line["part"], line["row"]): line["values"] for line in found}
    assert values["tests", "device tests"]["passed"] == 2
    for model, operation, unit in (
        ("intents", "classify", "texts"),
        ("minilm", "classify", "texts"),
        ("next-word", "score", "texts"),
        ("de-en", "translate", "tokens"),
        ("opus-mt", "translate", "tokens"),
    ):
        row = values["process", f"{model}, {operation}, batch 4"]
        assert row["unit"] == unit
        assert row["per_second"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert values["process", f"{model}, memory"]["memory_most_mb"] > 50
    for model, operation, each in (("intents", "classify", 4), ("minilm", "classify", 1), ("opus-mt", "translate", 1)):
        row = values["http", f"{model}, {operation}, {each} a request, 4 connections"]
        assert row["texts_per_second"] == pytest.approx(each * row["requests_per_second"])
        assert row["p50_ms"] <= row["p99_ms"]
        assert row["batch_items_mean"] >= 1
        assert row["inference_ms_mean"] > 0
        assert row["failed"] == 0
    assert values["http", "bundled models, start"]["ready_seconds"] > 0
    parts = values["steps", "opus-mt, translate, batch 4"]
    assert parts["runs"]["encode"] == 1
    assert 0 < parts["kernels_ms"] <= parts["graphs_ms"] <= parts["total_ms"]
    assert values["peers", "opus-mt, batch 4, CTranslate2, float16"]["per_second"] > 0
    assert values["peers", "minilm, batch 4, transformers, bfloat16, compiled"]["per_second"] > 0
    assert values["servers", "minilm, 4 a request, 2 connections, FastAPI, no batching"]["failed"] == 0
    assert set(values["costs", "minilm"]["classify"]["errors"]) >= {"1 x 4", "3 x 4"}
    assert values["losses", "float32"]["lin"] > 0
    assert values["training", "mix2"]["bfloat16_ms"] > 0
    assert "| `de-en`, 64 connections | at least 2,640 requests/s | not measured |" in printed

    assert main(minutes=30, device="cpu", output=output, small=True, work=tmp_path, parts=("process", "losses")) == 0
    assert len(_lines(output)) == len(found), "everything was there"
