"""Tests of checkpoints."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from training.run import checkpoint

CPU = torch.device("cpu")


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    content = {"model": {"weight": torch.arange(3.0)}, "progress": {"step": 3, "history": [{"metric": 1.5}]}}
    checkpoint.save(tmp_path / "last.pt", content)
    loaded = checkpoint.load(tmp_path / "last.pt", CPU)
    assert torch.equal(loaded["model"]["weight"], torch.arange(3.0))
    assert loaded["progress"] == content["progress"]
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]


def test_a_crash_while_saving_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"step": 1})

    def crash(content: Any, file: Path) -> None:
        file.write_bytes(b"half a check")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", crash)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(path, {"step": 2})
    assert checkpoint.load(path, CPU) == {"step": 1}


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    torch.save({"model": Path("anything but tensors")}, tmp_path / "last.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"[Ww]eights.only"):
        checkpoint.load(tmp_path / "last.pt", CPU)


def test_random_state_goes_back_to_where_it_was() -> None:
    torch.manual_seed(3)
    state = checkpoint.random_state(CPU)
    first = torch.rand(4)
    checkpoint.set_random_state(state, CPU)
    assert torch.equal(torch.rand(4), first)
