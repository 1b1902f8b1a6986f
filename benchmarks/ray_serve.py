"""Compare the service behind Ray Serve with the service alone, and with Ray Serve's own batching of the library.

    .venv-ray/bin/python -m benchmarks.ray_serve

Every side serves the bundled `de-en` and `intents` on all processors of this machine, which the load shares. Sides take
turns, each alone on the machine: 64 connections send one text in a request, translated with beam size 5, or classified.
"""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tyro
import uvloop
import yaml

from benchmarks.load.client import Client, TransportError
from benchmarks.server import post_json
from models.backend.cpus import usable_cpus
from tests.support.ports import free_port

__all__ = ["main"]

_MODELS = ["de-en", "intents"]
_SENTENCES = (
    "Guten Morgen!",
    "Kannst du mir sagen, wo der Bahnhof ist?",
    "Ich habe gestern ein Buch gekauft.",
    "Das Wetter ist heute sehr schön.",
    "Wir sehen uns morgen um acht Uhr vor dem Kino.",
)
_QUESTIONS = ("book a table for two tomorrow", "how is the weather in rome", "play some music", "call mom")
_WORK: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "translate": ("/v1/translate", _SENTENCES),
    "classify": ("/v1/classify", _QUESTIONS),
}


def _config(directory: Path, port: int, *, own_batching: bool) -> Path:
    threads = usable_cpus()
    path = "benchmarks.ray_batching:application" if own_batching else "service.deploy.ray:application"
    args = {"threads": threads} if own_batching else {"cpus": threads, "settings": {"models": _MODELS}}
    application = {"name": "models", "route_prefix": "/", "import_path": path, "args": args}
    file = directory / f"{port}.yaml"
    http = {"host": "127.0.0.1", "port": port}
    file.write_text(yaml.safe_dump({"http_options": http, "applications": [application]}))
    return file


@contextmanager
def _running(name: str, directory: Path) -> Iterator[int]:
    """Run a side; yields its port once it answers."""
    port, cli = free_port(), [sys.executable, "-m", "service.cli"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    if name == "service alone":
        command = [*cli, "serve", "--port", str(port), "--log-level", "warning", "--models", *_MODELS]
    else:
        command = [*cli, "ray", "up", str(_config(directory, port, own_batching="own batching" in name))]
        environment["RAY_SERVE_ENABLE_HA_PROXY"] = str(int("HAProxy" in name))
    with (directory / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        uvloop.run(_wait(port, process))
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


async def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until and process.poll() is None:
        try:
            if all([await _load(port, work, 1, 0.0) for work in _WORK]):
                return
        except (TransportError, ValueError):
            pass
        await asyncio.sleep(0.5)
    raise TimeoutError("a side did not answer")


async def _load(port: int, work: str, connections: int, seconds: float) -> float:
    """Return the answers/s that a closed loop of so many connections gets; a single one for no time."""
    path, texts = _WORK[work]
    until, answered = time.perf_counter() + seconds, 0

    async def connection(client: Client, number: int) -> None:
        nonlocal answered
        while True:
            status, answer = await post_json(client, path, {"text": texts[number % len(texts)]})
            if status != 200:
                raise TransportError(f"{status}: {answer}")
            number, answered = number + 1, answered + 1
            if time.perf_counter() >= until:
                return

    async with Client(f"http://127.0.0.1:{port}", None, connections) as client:
        started = time.perf_counter()
        await asyncio.gather(*(connection(client, number) for number in range(connections)))
        return answered / (time.perf_counter() - started)


def main(connections: int = 64, seconds: float = 12.0, rounds: int = 3) -> None:
    """Print medians over rounds as a Markdown table.

    Args:
        connections: Connections of the load.
        seconds: Duration of each measurement.
        rounds: Measurements of each side.
    """
    sides = "service alone", "Ray Serve, HAProxy", "Ray Serve, its own proxy", "Ray Serve, own batching, HAProxy"
    rates: dict[str, dict[str, list[float]]] = {name: {work: [] for work in _WORK} for name in sides}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(rounds):
            for name in sides if number % 2 else reversed(sides):
                with _running(name, Path(directory)) as port:
                    for work in _WORK:
                        uvloop.run(_load(port, work, connections, 3.0))
                        rates[name][work].append(uvloop.run(_load(port, work, connections, seconds)))
                print(f"round {number + 1}, {name}: { ({work: round(rates[name][work][-1], 1) for work in _WORK}) }")
    print(f"{os.uname().machine}, {usable_cpus()} processors, {connections} connections, medians of {rounds}")
    print("| | " + " | ".join(f"{work}, requests/s | of the service alone" for work in _WORK) + " |")
    print("| --- |" + " --- |" * 2 * len(_WORK))
    medians: dict[str, Any] = {n: {w: statistics.median(v) for w, v in each.items()} for n, each in rates.items()}
    for name, each in medians.items():
        cells = (f"{each[work]:.0f} | {each[work] / medians['service alone'][work]:.2f}" for work in _WORK)
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    tyro.cli(main)
