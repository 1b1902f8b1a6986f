"""What the service does when more is asked of it than it can: answers and refusals at 0.8 and 3 times its capacity.

    python -m benchmarks.overload

Capacity is what some clients get that each wait for their answer. After it requests come at random times (a Poisson
process) whatever becomes of those before, from a process of its own, at a share of that rate. The model is a
classifier; each request has several texts, so that the client's own work is small.
"""

import asyncio
import multiprocessing
import os
import platform
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.client import Connection
from benchmarks.server import free_port, wait_until_ready
from service.settings import BUNDLED

_WORDS = ("please", "tell", "me", "how", "my", "card", "was", "declined", "at", "the", "airport", "and", "why")


@dataclass
class Load:
    """What came of requests: seconds of answers and of refusals, and how many got neither."""

    rate: float = 0.0
    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)


def main(
    model_dir: Path = BUNDLED,
    model: str = "intents",
    texts: int = 8,
    clients: int = 32,
    seconds: int = 60,
    deadline_ms: int = 1000,
    options: str = "",
) -> None:
    """Prints a table.

    Args:
        model_dir: Directory that holds the bundles.
        model: A classifier of texts.
        texts: Of one request.
        clients: Connections that measure the capacity.
        seconds: Of the overload; the other phases take half of it.
        deadline_ms: Of each request, in milliseconds; one that is answered 504 counts as failed.
        options: Flags of `softserve serve`.
    """
    port = free_port()
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), "--log-level", "warning"]
    server = subprocess.Popen([*command, "--model-dirs", str(model_dir), "--models", model, *options.split()])
    machine = f"{platform.machine()}, {os.cpu_count()} processors"
    print(f"{model}, {texts} texts a request; {machine}; deadline {deadline_ms} ms; {options}")
    print("| load | requests/s | answered/s | p50 | p99 | refused/s | p99 of refusals | slowest | failed | memory |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    try:
        wait_until_ready(port).close()
        closed = _apart(_closed_load, port, texts, clients, seconds / 2, deadline_ms)
        capacity = len(closed.answered) / (seconds / 2)
        _print("capacity", closed, seconds / 2, server.pid)
        for name, share, duration in (("0.8 x", 0.8, seconds / 2), ("3 x", 3.0, seconds), ("0.8 x", 0.8, seconds / 2)):
            load = _apart(_open_load, port, texts, share * capacity, duration, deadline_ms)
            _print(name, load, duration, server.pid)
    finally:
        server.terminate()
        server.wait()


def _apart(work: Callable[..., Coroutine[Any, Any, Load]], *arguments: object) -> Load:
    """Runs a load in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (work, arguments))


def _run(work: Callable[..., Coroutine[Any, Any, Load]], arguments: Sequence[object]) -> Load:
    return asyncio.run(work(*arguments))


async def _closed_load(port: int, texts: int, clients: int, seconds: float, deadline_ms: int) -> Load:
    load, generator, end = Load(), random.Random(0), time.perf_counter() + seconds

    async def client() -> None:
        connection = Connection(port)
        while time.perf_counter() < end:
            await _ask(connection, generator, texts, load, deadline_ms)

    await asyncio.gather(*(client() for _ in range(clients)))
    load.rate = len(load.answered) / seconds
    return load


async def _open_load(port: int, texts: int, rate: float, seconds: float, deadline_ms: int) -> Load:
    load, generator = Load(rate), random.Random(1)
    idle: list[Connection] = []
    running: set[asyncio.Task[None]] = set()

    async def one() -> None:
        connection = idle.pop() if idle else Connection(port)
        await _ask(connection, generator, texts, load, deadline_ms)
        idle.append(connection)

    start = due = time.perf_counter()
    while due < start + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one())
        running.add(task)
        task.add_done_callback(running.discard)
        due += generator.expovariate(rate)
    await asyncio.gather(*running)
    return load


async def _ask(connection: Connection, generator: random.Random, texts: int, load: Load, deadline_ms: int) -> None:
    body = {"text": [" ".join(generator.choices(_WORDS, k=generator.randint(5, 15))) for _ in range(texts)]}
    started = time.perf_counter()
    try:
        status = (await connection.post("/v1/classify", body, f"X-Request-Timeout-Ms: {deadline_ms}\r\n")).status
    except (OSError, EOFError) as error:
        connection.drop()
        load.failed[type(error).__name__] += 1
        return
    elapsed = time.perf_counter() - started
    if status == 200:
        load.answered.append(elapsed)
    elif status == 429:
        load.refused.append(elapsed)
    else:
        load.failed[str(status)] += 1


def _print(name: str, load: Load, seconds: float, pid: int) -> None:
    p50, p99 = (1000 * float(np.percentile(load.answered or [0], share)) for share in (50, 99))
    refused = 1000 * float(np.percentile(load.refused or [0], 99))
    slowest = 1000 * max(load.refused, default=0)
    print(
        f"| {name} | {load.rate:.1f} | {len(load.answered) / seconds:.1f} | {p50:.0f} ms | {p99:.0f} ms | "
        f"{len(load.refused) / seconds:.1f} | {refused:.1f} ms | {slowest:.1f} ms | {dict(load.failed) or 0} | "
        f"{_resident(pid):.0f} MB |",
        flush=True,
    )


def _resident(pid: int) -> float:
    """Megabytes (Linux: `/proc`)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    tyro.cli(main)
