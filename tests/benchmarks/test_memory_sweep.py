"""Tests of the sweep of mixtures of requests under a memory limit, which bounds no delays."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_memory_sweep_runs():
    flags = ["--minutes", "0.01", "--max-clients", "1", "--seed", "15"]
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory_sweep", *flags], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert re.search(r"minute +\d\.\d: at most \d+ MB", finished.stdout)
    assert re.search(r"\d+ mixtures, \d+ requests", finished.stdout)
