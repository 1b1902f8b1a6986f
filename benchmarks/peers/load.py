"""Load on a server, by wrk (https://github.com/wg/wrk): each connection sends its next request after its answer."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Load", "find_wrk", "measure", "parse"]

_SCRIPT = Path(__file__).with_name("load.lua")
_TIMEOUT = 10
"""Seconds after which wrk counts an answer as late."""


@dataclass(frozen=True, slots=True)
class Load:
    """What connections got."""

    rate: float
    """Right answers a second."""
    p50: float
    """Milliseconds."""
    p99: float
    """Milliseconds."""
    errors: int
    """Answers with a status of 400 or more, connections that broke, answers that were late."""


def find_wrk() -> str:
    """Its path; raises `FileNotFoundError` that says how to install it."""
    path = shutil.which("wrk")
    if path is None:
        raise FileNotFoundError(
            "wrk, which makes the load, is not installed: "
            "`apt-get install wrk` (Debian, Ubuntu), `brew install wrk` (macOS), or see https://github.com/wg/wrk"
        )
    return path


def measure(port: int, path: str, bodies: Path, connections: int, seconds: int, first: int = 0) -> Load:
    """Loads a server on this machine with the bodies of a file, one a line, from line `first` on."""
    command = [find_wrk(), "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s"]
    command += ["--timeout", f"{_TIMEOUT}s", "--script", str(_SCRIPT), f"http://127.0.0.1:{port}{path}"]
    environment = {**os.environ, "BODIES": str(bodies), "FIRST": str(first)}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds + 60)
    return parse(finished.stdout + finished.stderr)


def parse(output: str) -> Load:
    """What load.lua printed; raises `RuntimeError` where it printed nothing."""
    found = re.search(r"^result (\{.*\})$", output, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"wrk failed: {output.strip()}")
    result = json.loads(found[1])
    return Load(
        rate=(result["answers"] - result["refused"]) / (result["microseconds"] / 1e6),
        p50=result["p50"] / 1000,
        p99=result["p99"] / 1000,
        errors=result["refused"] + result["broken"] + result["late"],
    )
