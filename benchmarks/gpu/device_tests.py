"""The tests of `make test-gpu`: results on the device are those of the processor."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu.results import Context, Values

__all__ = ["run"]

_ROOT = Path(__file__).parents[2]
_FILES = ("tests/models/test_devices.py", "tests/training/test_devices.py")
_SMALL = ("tests/models/test_devices.py", "--noconftest", "-k", "test_classes and cpu")


def run(context: Context) -> None:
    """Write a row: how many tests passed and were skipped; the row fails where a test does."""
    context.measure("device tests", lambda: _passed(context))


def _passed(context: Context) -> Values:
    """Return the numbers of tests by outcome; raises `RuntimeError` where one failed, or none passed."""
    environment = {**os.environ, **({"SOFTSERVE_REQUIRE_GPU": "1"} if context.on_gpu else {})}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(_SMALL if context.small else _FILES)]
    started = time.perf_counter()
    finished = subprocess.run(
        command,
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=max(1.0, context.deadline - time.monotonic()),
    )
    lines = finished.stdout.strip().splitlines() or finished.stderr.strip().splitlines() or [""]
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (passed|failed|skipped|errors?)", lines[-1])}
    if finished.returncode or not counts.get("passed"):
        raise RuntimeError(f"status {finished.returncode}: {' '.join(lines[-8:])[-250:]}")
    seconds = time.perf_counter() - started
    return {"passed": counts["passed"], "skipped": counts.get("skipped", 0), "seconds": seconds}
