"""Measure overload: throughput, latency and refusals of the service at 0.8 and 3 times its capacity.

    python -m benchmarks.overload

The load generator is `benchmarks.load`, a process for each row of the table. Capacity is the throughput of a closed
loop; the other rows are open loops (a Poisson process) at a multiple of that rate. The model is a text classifier; each
request has several texts, so that the client needs little processor time. Rates count responses within the measured
time; latency counts from when a request was due.
"""

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tyro

from benchmarks.server import serving
from service.settings import BUNDLED
from tests.support.memory_limit import resident

__all__ = ["measure", "write_texts"]

_WORDS = ("please", "tell", "me", "how", "my", "card", "was", "declined", "at", "the", "airport", "and", "why")
_TEXTS = 10_000
"""Different texts, of 5 to 15 words; afterwards they repeat."""
_CAPACITY_DEADLINE_MS = 30_000
"""Deadline of the requests that measure the capacity."""
_COLUMNS = (
    "load",
    "requests/s",
    "answered/s",
    "p50",
    "p99",
    "refused/s",
    "p99 of refusals",
    "slowest refusal",
    "failed",
    "client busy",
    "memory",
)


def main(
    model_dir: Path = BUNDLED,
    model: str = "intents",
    texts: int = 8,
    clients: int = 32,
    seconds: int = 60,
    deadline_ms: int = 1000,
    options: str = "",
) -> None:
    """Print a Markdown table.

    Args:
        model_dir: Directory that holds the bundles.
        model: A text classifier.
        texts: Texts per request.
        clients: Connections of the closed loop that measures the capacity.
        seconds: Duration of the overload; the other phases take half of it.
        deadline_ms: Deadline of each request, in milliseconds; a request that is answered 504 counts as failed.
        options: Flags of `softserve serve`.
    """
    machine = f"{platform.machine()}, {os.cpu_count()} processors"
    print(f"{model}, {texts} texts a request; {machine}; deadline {deadline_ms} ms; {options}")
    print(f"| {' | '.join(_COLUMNS)} |\n{'| --- ' * len(_COLUMNS)}|")
    with tempfile.TemporaryDirectory() as directory, serving(model_dir, model, *options.split()) as (port, pid):
        bench = [sys.executable, "-m", "benchmarks.load", f"http://127.0.0.1:{port}", "--warm-up", "0"]
        bench += ["--file", str(write_texts(Path(directory))), "--texts-per-request", str(texts)]
        closed = ["--connections", str(clients), "--timeout-ms", str(_CAPACITY_DEADLINE_MS)]
        result = measure([*bench, *closed, "--seconds", str(seconds / 2)], Path(directory))
        _print("capacity", result, pid)
        for load, duration in ((0.8, seconds / 2), (3.0, seconds), (0.8, seconds / 2)):
            rate = load * result["requests_per_second"]
            flags = ["--rate", str(rate), "--timeout-ms", str(deadline_ms), "--seconds", str(duration)]
            _print(f"{load:g} x", measure([*bench, *flags], Path(directory)), pid)


def write_texts(directory: Path) -> Path:
    """Write texts of 5 to 15 words to a file; return its path."""
    generator = random.Random(0)
    file = directory / "texts"
    texts = (" ".join(generator.choices(_WORDS, k=generator.randint(5, 15))) for _ in range(_TEXTS))
    file.write_text("\n".join(texts), encoding="utf-8")
    return file


def measure(command: list[str], directory: Path) -> dict[str, Any]:
    """Return the JSON of one load test."""
    file = directory / "result.json"
    subprocess.run([*command, "--json", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    return result


def _print(name: str, result: dict[str, Any], pid: int) -> None:
    latency, refused = (found or {"p50": 0, "p99": 0, "max": 0} for found in _latencies(result))
    statuses = {status: count for status, count in result["statuses"].items() if status not in ("200", "429")}
    cells = (
        name,
        f"{result['requests'] / result['seconds']:.1f}",
        f"{result['requests_per_second']:.1f}",
        f"{latency['p50']:.0f} ms",
        f"{latency['p99']:.0f} ms",
        f"{result['refused']['count'] / result['seconds']:.1f}",
        f"{refused['p99']:.1f} ms",
        f"{refused['max']:.1f} ms",
        str({**statuses, **result["failures"]} or 0),
        f"{100 * result['client']['processor_share']:.0f} %",
        f"{resident(pid):.0f} MB",
    )
    print(f"| {' | '.join(cells)} |", flush=True)


def _latencies(result: dict[str, Any]) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    return result["latency_ms"], result["refused"]["latency_ms"]


if __name__ == "__main__":
    tyro.cli(main)
