"""Runs a function in two processes of a gloo process group."""

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, multiprocessing

__all__ = ["in_two_processes"]

_ROOT = Path(__file__).parents[2]


def in_two_processes(function: Callable[[], Any]) -> list[Any]:
    """Return the results of a function of a module in ranks 0 and 1: numbers, strings and tensors, in containers.

    The processes are forked by a new one, which has imported the function's module and has no threads.
    """
    if not (distributed.is_available() and distributed.is_gloo_available()):
        pytest.skip("this build of torch has no gloo")
    with tempfile.TemporaryDirectory() as directory:
        finished = subprocess.run(
            [sys.executable, "-m", __name__, function.__module__, function.__qualname__, directory],
            env={**os.environ, "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"},
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        return [torch.load(Path(directory) / f"{rank}.pt", weights_only=True) for rank in range(2)]


def _work(rank: int, function: Callable[[], Any], directory: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{directory}/group", rank=rank, world_size=2)
    torch.save(function(), directory / f"{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    name, function_name, folder = sys.argv[1:]
    work = getattr(importlib.import_module(name), function_name)
    multiprocessing.start_processes(_work, args=(work, Path(folder)), nprocs=2, start_method="fork")
