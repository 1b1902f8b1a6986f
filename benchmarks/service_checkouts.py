"""Compare the throughput of the service of this checkout with that of another one, such as an earlier commit.

    git worktree add ../before COMMIT
    python -m benchmarks.service_checkouts ../before

Each side is a server of its own with its bundled model and default settings; they take turns in every round, from so
many connections. Printed are the medians of requests/s, of the server's processor time for a request, and of the ratios
within a round, in parentheses the least and the largest median of a start: servers of equal checkouts differ by some
percent from start to start. Processor time depends less on other programs of the machine.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks.server import processor_seconds, wait_until_ready
from tests.support.ports import free_port

__all__ = ["main"]

Pair = tuple[float, float]
"""A number of this checkout, and of the other one."""


def main(
    other: Annotated[Path, tyro.conf.Positional],
    bundle: str = "intents",
    path: str = "/v1/classify",
    text: str = "is my flight to rome on time",
    connections: tuple[int, ...] = (1, 16),
    requests: int = 400,
    rounds: int = 5,
    starts: int = 5,
) -> None:
    """Print a Markdown table.

    Args:
        other: Directory of the other checkout.
        bundle: A bundled model.
        path: An endpoint that takes `text`.
        text: The text of each request, after a number.
        connections: Numbers of connections, a row each.
        requests: Requests of each measurement.
        rounds: Measurements of each side after each start.
        starts: How often both servers are started.
    """
    directories = Path(__file__).resolve().parents[1], other.resolve()
    print("| connections | requests/s here | there | ratio | ms of processor here | there | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for count in connections:
        measured = [_start(directories, bundle, path, text, count, requests, rounds) for _ in range(starts)]
        cells = [each for kind in (0, 1) for each in _cells([start[kind] for start in measured], 1000 if kind else 1)]
        print(f"| {count} | {' | '.join(cells)} |", flush=True)


def _start(
    directories: Sequence[Path], bundle: str, path: str, text: str, count: int, requests: int, rounds: int
) -> tuple[list[Pair], list[Pair]]:
    """Return requests/s, and seconds of processor time for a request, of both sides in each round after a start."""
    rates, costs = [], []
    with ExitStack() as servers:
        sides = [servers.enter_context(_serving(directory, bundle)) for directory in directories]
        for number in range(rounds + 1):  # the first one warms up
            order = (0, 1) if number % 2 else (1, 0)
            found = {place: _measured(*sides[place], path, text, count, requests) for place in order}
            if number:
                rates.append((found[0][0], found[1][0]))
                costs.append((found[0][1], found[1][1]))
    return rates, costs


def _cells(starts: Sequence[Sequence[Pair]], factor: float) -> list[str]:
    """Return the medians of both sides, and that of the ratios with the range of the starts."""
    pairs = [pair for start in starts for pair in start]
    ratios = [statistics.median(mine / its for mine, its in start) for start in starts]
    whole = statistics.median(mine / its for mine, its in pairs)
    sides = [f"{factor * statistics.median(side):.3f}" for side in zip(*pairs, strict=True)]
    return [*sides, f"{whole:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"]


@contextmanager
def _serving(directory: Path, bundle: str) -> Iterator[tuple[int, int]]:
    """Run the service of a checkout; yields its port and process id."""
    port = free_port()
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), "--log-level", "warning"]
    command += ["--models", bundle]
    server = subprocess.Popen(command, cwd=directory, env={**os.environ, "PYTHONPATH": str(directory)})
    try:
        wait_until_ready(port)
        yield port, server.pid
    finally:
        server.terminate()
        server.wait()


def _measured(port: int, pid: int, path: str, text: str, connections: int, requests: int) -> tuple[float, float]:
    """Return requests/s, and seconds of the server's processor time for a request."""
    before, started = processor_seconds(pid), time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        shares = [range(first, requests, connections) for first in range(connections)]
        list(pool.map(lambda numbers: _ask(port, path, text, numbers), shares))
    taken = time.perf_counter() - started
    return requests / taken, (processor_seconds(pid) - before) / requests


def _ask(port: int, path: str, text: str, numbers: range) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for number in numbers:
        connection.request("POST", path, json.dumps({"text": f"{number} {text}"}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(content.decode())
    connection.close()


if __name__ == "__main__":
    tyro.cli(main)
