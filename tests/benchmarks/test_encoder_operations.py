"""Tests of the comparison of all operations of imported encoders with transformers."""

from pathlib import Path

import pytest

from benchmarks import encoder_operations
from benchmarks.encoder_operations import OPERATIONS, Architecture, measure


@pytest.mark.parametrize("head", ["classes", "tags"])
def test_each_operation_of_a_head_has_a_row(head: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Heads whose reference is transformers alone; the deviation is that of larger models, so that classes differ."""
    monkeypatch.setattr(encoder_operations, "ARCHITECTURES", {"tiny": Architecture("NomicBert", {}, 0.2)})
    rows = [row.strip("| ").split(" | ") for row in measure("tiny", head, tmp_path, 8)]
    assert [row[1] for row in rows] == [name for name, each in OPERATIONS.items() if each.head == head]
    for _, _, _, alone, together, correlation, *_ in rows:
        assert 0 < float(alone) < 1e-4
        assert 0 < float(together) < 1e-4
        assert float(correlation) > 0.5
