"""What a next word costs after a long context and after a short one, once the service has seen how they begin.

    python -m benchmarks.prefixes

Clients type: each sends its context with one more word each time. Both kinds take turns in one run, and no two clients
have the same context.
"""

import asyncio
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import tyro

from benchmarks.client import Connection
from benchmarks.server import free_port, wait_until_ready
from service.settings import BUNDLED

WORDS = ("we", "had", "a", "very", "good", "time", "at", "the", "end", "of", "last", "week", "and", "then", "i")


def main(
    model_dir: Path = BUNDLED,
    model: str = "next-word",
    clients: int = 64,
    typed: int = 20,
    rounds: int = 7,
    words: tuple[int, int] = (10, 970),
    options: str = "--prefix-cache-mb 512",
) -> None:
    """Prints medians over rounds.

    Args:
        model_dir: Directory that holds the bundles.
        model: A language model.
        clients: Connections.
        typed: Words that each client adds in a round.
        rounds: Rounds of both kinds, after one to warm up.
        words: Lengths of contexts.
        options: Flags of `softserve serve`.
    """
    port = free_port()
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), "--log-level", "warning"]
    server = subprocess.Popen([*command, "--model-dirs", str(model_dir), "--models", model, *options.split()])
    times: dict[int, list[float]] = {length: [] for length in words}
    try:
        wait_until_ready(port).close()
        for number in range(rounds + 1):
            for length in words if number % 2 else reversed(words):
                seconds = asyncio.run(_type(port, length, clients, typed, seed=number))
                if number:
                    times[length].append(1000 * seconds / (clients * typed))
    finally:
        server.terminate()
        server.wait()
    print(f"{model}, {clients} clients; {platform.machine()}, {os.cpu_count()} processors; {options}")
    medians = {length: statistics.median(values) for length, values in times.items()}
    for length, values in times.items():
        print(f"{length:>5} words: {medians[length]:.3f} ms a request, {min(values):.3f} to {max(values):.3f}")
    ratios = [long / short for short, long in zip(times[min(words)], times[max(words)], strict=True)]
    print(f"ratio {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f} within a round")


async def _type(port: int, length: int, clients: int, typed: int, seed: int) -> float:
    """Seconds in which all clients have typed their words."""
    connections = [Connection(port) for _ in range(clients)]
    texts = []
    for client in range(clients):
        generator = random.Random(f"{seed} {client} {length}")
        texts.append(" ".join(generator.choices(WORDS, k=length)))
    for connection, text in zip(connections, texts, strict=True):  # so that their beginnings are known
        assert (await connection.post("/v1/next-word", {"context": text})).status == 200

    async def one(connection: Connection, text: str) -> None:
        generator = random.Random(text)
        for _ in range(typed):
            text += f" {generator.choice(WORDS)}"
            answer = await connection.post("/v1/next-word", {"context": text, "top_k": 5})
            assert answer.status == 200, answer

    started = time.perf_counter()
    await asyncio.gather(*(one(*pair) for pair in zip(connections, texts, strict=True)))
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.drop()
    return seconds


if __name__ == "__main__":
    tyro.cli(main)
