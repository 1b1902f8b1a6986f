"""`benchmarks.softmax losses` in small: every side computes its loss, and a table is written once for each size."""

from pathlib import Path

import pytest
import torch

from benchmarks import softmax
from benchmarks.losses import BASE, Cell, measure, table


@pytest.mark.parametrize("bfloat16", [False, True])
def test_every_side_has_numbers(bfloat16: bool) -> None:
    cell = Cell(positions=70, hidden_size=8, classes=2_600, bfloat16=bfloat16)
    found = measure(cell, rounds=1)
    assert {"lin", "mixbig (K = 9)", "F.linear_cross_entropy, chunked", BASE} <= found.keys()
    assert all(values["ms"] > 0 for values in found.values())  # type: ignore[operator]
    exact = {name: values["error"] for name, values in found.items() if values["error"] is not None}
    assert len(exact) == len(found) - 2  # another loss and another model
    assert all(error < (0.1 if bfloat16 else 1e-4) for error in exact.values())
    assert found[BASE]["ratio"] == 1
    assert f"**{cell}**" in table({str(cell): found})


def test_a_size_is_measured_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        try:
            softmax.losses(
                positions=4,
                hidden_sizes=(8,),
                classes=(30, 40),
                rounds=1,
                only=("lin",),
                output=tmp_path / "losses.jsonl",
            )
        finally:
            torch.set_default_device(None)
    printed = capsys.readouterr().out
    assert printed.count("float32: measured") == 2
    assert printed.count("| `lin` |") == 4
