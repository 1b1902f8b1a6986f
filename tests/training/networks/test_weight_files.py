"""Tests of files of pretrained weights."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from training.networks.weight_files import read_weights

WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(2, dtype=torch.float16)}


def test_both_formats_hold_the_same_tensors(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    torch.save({**WEIGHTS, "step": 3, 7: torch.ones(1)}, tmp_path / "pytorch_model.bin")
    for name in ("model.safetensors", "pytorch_model.bin"):
        torch.testing.assert_close(read_weights(tmp_path / name), WEIGHTS, rtol=0, atol=0)


class _Harmful:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("false",)


@pytest.mark.parametrize("content", [{"a": _Harmful()}, [torch.ones(1)]])
def test_pickles_of_other_objects_are_refused(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model.bin is not a file of weights"):
        read_weights(tmp_path / "pytorch_model.bin")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_weights(tmp_path)


def test_rubbish_and_missing_files_are_named(tmp_path: Path) -> None:
    for name, kind in (("a.safetensors", "a safetensors file"), ("a.bin", "a file of weights")):
        with pytest.raises(FileNotFoundError, match=name):
            read_weights(tmp_path / name)
        (tmp_path / name).write_bytes(b"rubbish")
        with pytest.raises(ValueError, match=f"{name} is not {kind}"):
            read_weights(tmp_path / name)
