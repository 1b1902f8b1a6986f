"""Checkpoints that resume exactly, and files that a crash leaves whole."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

__all__ = ["load", "random_state", "replace_file", "save", "set_random_state"]


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint; a crash leaves the old one or the new one, never a part of it."""
    replace_file(path, lambda temporary: torch.save(content, temporary))


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, and to the disk, before it takes the place of the old one."""
    temporary = path.with_suffix(".tmp")
    write(temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: Path, device: torch.device, *, mapped: bool = False) -> dict[str, Any]:
    """Return the content of a checkpoint; `mapped` reads tensors from the file when they are used."""
    content: dict[str, Any] = torch.load(path, map_location=device, weights_only=True, mmap=mapped)
    return content


def random_state(device: torch.device) -> dict[str, Any]:
    state = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(state["torch"].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)
