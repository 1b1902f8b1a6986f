"""Tests of the comparison of causal models in float32, int8 and int4."""

from pathlib import Path

import pytest

from benchmarks import causal_quantization
from benchmarks.causal_equality import Published
from benchmarks.causal_quantization import measure


def test_each_precision_has_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes = {"vocab_size": 600, "n_embd": 128, "n_layer": 1, "n_head": 4, "n_positions": 256}
    monkeypatch.setattr(causal_quantization, "PUBLISHED", {"tiny": Published("GPT2LMHeadModel", sizes)})
    rows = [row.strip("| ").split(" | ") for row in measure("tiny", tmp_path, threads=1, rounds=1)]
    assert [row[1] for row in rows] == ["float32", "int8", "int4"]
    assert [float(row[6]) > 0 for row in rows] == [False, True, True]
    assert all(float(row[5].split()[0]) > 0 for row in rows)
