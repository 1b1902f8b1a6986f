"""Measure a shadow: latency of the primary without and with it at loads below and beyond the capacity.

    python -m benchmarks.shadow

The candidate is a copy of the primary as another version, so that it costs as much and agrees on every text. The load
generator is `benchmarks.load`, a process for each round, open loop (a Poisson process) at a multiple of the throughput
of a closed loop. Rounds without and with the shadow take turns on one server; the ratio is that of the medians of their
99th percentiles.
"""

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from benchmarks.overload import measure, write_texts
from benchmarks.server import serving
from models import ModelStore
from models.bundle.manifest import MANIFEST
from service.settings import BUNDLED

_KEY = "the-key-of-the-benchmark"
_CLIENTS = 16
_DEADLINE_MS = 30_000
_COLUMNS = ("load", "shadow", "answered/s", "refused/s", "p50", "p99", "compared", "agree", "shed", "failed")


def main(
    model: str = "intents",
    loads: tuple[float, ...] = (0.3, 0.8, 2.0),
    rounds: int = 3,
    seconds: float = 20.0,
    texts: int = 1,
    options: str = "",
) -> None:
    """Print a Markdown table, and the ratio of the 99th percentiles for each load.

    Args:
        model: One of the bundled models.
        loads: Loads as multiples of the capacity.
        rounds: Rounds without and with the shadow at each load.
        seconds: Duration of a round.
        texts: Texts per request.
        options: Flags of `softserve serve`.
    """
    print(f"{model}, {texts} texts a request; {platform.machine()}, {os.cpu_count()} processors; {options}")
    print(f"| {' | '.join(_COLUMNS)} |\n{'| --- ' * len(_COLUMNS)}|")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "admins").write_text(_KEY)
        primary, candidate = _copies(model, directory / "models")
        flags = ["--admin-keys", str(directory / "admins"), *options.split()]
        with serving(directory / "models", primary, *flags, seconds=120.0) as (port, _):
            bench = [sys.executable, "-m", "benchmarks.load", f"http://127.0.0.1:{port}", "--warm-up", "0"]
            bench += ["--file", str(write_texts(directory)), "--texts-per-request", str(texts), "--model", model]
            bench += ["--seconds", str(seconds), "--timeout-ms", str(_DEADLINE_MS)]
            capacity = measure([*bench, "--connections", str(_CLIENTS)], directory)["requests_per_second"]
            print(f"capacity: {capacity:.1f} requests/s", file=sys.stderr)
            for load in loads:
                command = [*bench, "--rate", str(load * capacity)]
                found = [_round(command, directory, port, load, candidate) for _ in range(rounds)]
                without, with_shadow = (statistics.median(some) for some in zip(*found, strict=True))
                print(f"{load:g} x: p99 with the shadow / without it: {with_shadow / without:.3f}", flush=True)


def _copies(model: str, directory: Path) -> Sequence[str]:
    """Write a model and a copy as the version before it; return their full names."""
    path = ModelStore(BUNDLED).path(model)
    newest = int(path.name) + 1
    for version in (newest, newest - 1):
        copy = shutil.copytree(path, directory / path.parent.name / str(version))
        content = json.loads((copy / MANIFEST).read_text(encoding="utf-8"))
        (copy / MANIFEST).write_text(json.dumps({**content, "version": version}), encoding="utf-8")
    return f"{path.parent.name}:{newest}", f"{path.parent.name}:{newest - 1}"


def _round(command: list[str], directory: Path, port: int, load: float, candidate: str) -> tuple[float, float]:
    """Return the 99th percentiles without and with a shadow, in milliseconds."""
    without = measure(command, directory)
    _print(load, "no", without, {})
    name = candidate.partition(":")[0]
    _call(port, "POST", "", {"name": "copy", "primary": name, "candidate": candidate})
    with_shadow = measure(command, directory)
    _print(load, "yes", with_shadow, _call(port, "DELETE", "/copy")["inputs"])
    return without["latency_ms"]["p99"], with_shadow["latency_ms"]["p99"]


def _call(port: int, method: str, path: str, body: object = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/admin/experiments{path}",
        json.dumps(body).encode() if body is not None else None,
        {"Authorization": f"Bearer {_KEY}", "Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _print(load: float, shadow: str, result: dict[str, Any], inputs: dict[str, int]) -> None:
    latency = result["latency_ms"]
    failed = sum(count for status, count in result["statuses"].items() if status not in ("200", "429"))
    cells = (
        f"{load:g} x",
        shadow,
        f"{result['requests_per_second']:.1f}",
        f"{result['refused']['count'] / result['seconds']:.1f}",
        f"{latency['p50']:.1f} ms",
        f"{latency['p99']:.1f} ms",
        sum(inputs.get(each, 0) for each in ("agree", "disagree", "compared")),
        inputs.get("agree", 0),
        inputs.get("shed", 0),
        failed + sum(result["failures"].values()),
    )
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
