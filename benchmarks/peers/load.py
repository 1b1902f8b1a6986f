"""Load a server with wrk (https://github.com/wg/wrk): each connection sends its next request after the response."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LoadResult", "find_wrk", "measure", "parse"]

_SCRIPT = Path(__file__).with_name("load.lua")
_TIMEOUT = 10
"""Seconds after which wrk counts a response as late."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load test."""

    rate: float
    """Correct responses/s."""
    p50: float
    """Median latency in milliseconds."""
    p99: float
    """99th percentile of the latency in milliseconds."""
    errors: int
    """Responses of status 400 or more, broken connections, late responses."""


def find_wrk() -> str:
    """Return the path of wrk; raises a `FileNotFoundError` that tells how to install it."""
    path = shutil.which("wrk")
    if path is None:
        raise FileNotFoundError(
            "wrk, which makes the load, is not installed: "
            "`apt-get install wrk` (Debian, Ubuntu), `brew install wrk` (macOS), or see https://github.com/wg/wrk"
        )
    return path


def measure(port: int, path: str, bodies: Path, connections: int, seconds: int, first: int = 0) -> LoadResult:
    """Load a server on this machine with the bodies of a file, one per line, from line `first` on."""
    command = [find_wrk(), "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s"]
    command += ["--timeout", f"{_TIMEOUT}s", "--script", str(_SCRIPT), f"http://127.0.0.1:{port}{path}"]
    environment = {**os.environ, "BODIES": str(bodies), "FIRST": str(first)}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds + 60)
    return parse(finished.stdout + finished.stderr)


def parse(output: str) -> LoadResult:
    """Return the result that load.lua printed; raises `RuntimeError` without one."""
    found = re.search(r"^result (\{.*\})$", output, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"wrk failed: {output.strip()}")
    result = json.loads(found[1])
    return LoadResult(
        rate=(result["answers"] - result["refused"]) / (result["microseconds"] / 1e6),
        p50=result["p50"] / 1000,
        p99=result["p99"] / 1000,
        errors=result["refused"] + result["broken"] + result["late"],
    )
