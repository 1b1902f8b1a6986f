"""Measure the cost of a next word after a long and after a short context whose beginning is in the prefix cache.

    python -m benchmarks.prefixes

Each client sends its context with one more word in each request. Both lengths take turns in one run, and no two clients
have the same context. A request includes 0.13 ms of processor time of the client, aiohttp with uvloop.
"""

import asyncio
import os
import platform
import random
import statistics
import time
from pathlib import Path

import tyro
import uvloop

from benchmarks.load.client import Client
from benchmarks.server import post_json, serving
from service.settings import BUNDLED

WORDS = ("we", "had", "a", "very", "good", "time", "at", "the", "end", "of", "last", "week", "and", "then", "i")


def main(
    model_dir: Path = BUNDLED,
    model: str = "next-word:4",
    clients: int = 64,
    typed: int = 20,
    rounds: int = 7,
    words: tuple[int, int] = (10, 970),
    options: str = "--prefix-cache-mb 512",
) -> None:
    """Print medians over rounds.

    Args:
        model_dir: Directory that holds the bundles.
        model: A language model.
        clients: Concurrent connections.
        typed: Words that each client adds in a round.
        rounds: Rounds of both lengths, after one to warm up.
        words: Lengths of contexts, in words.
        options: Flags of `softserve serve`.
    """
    times: dict[int, list[float]] = {length: [] for length in words}
    with serving(model_dir, model, *options.split()) as (port, _):
        for number in range(rounds + 1):
            for length in words if number % 2 else reversed(words):
                seconds = uvloop.run(_type(port, length, clients, typed, seed=number))
                if number:
                    times[length].append(1000 * seconds / (clients * typed))
    print(f"{model}, {clients} clients; {platform.machine()}, {os.cpu_count()} processors; {options}")
    medians = {length: statistics.median(values) for length, values in times.items()}
    for length, values in times.items():
        print(f"{length:>5} words: {medians[length]:.3f} ms a request, {min(values):.3f} to {max(values):.3f}")
    ratios = [long / short for short, long in zip(times[min(words)], times[max(words)], strict=True)]
    print(f"ratio {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f} within a round")


async def _type(port: int, length: int, clients: int, typed: int, seed: int) -> float:
    """Return the seconds until all clients have typed their words."""
    texts = []
    for client in range(clients):
        generator = random.Random(f"{seed} {client} {length}")
        texts.append(" ".join(generator.choices(WORDS, k=length)))
    async with Client(f"http://127.0.0.1:{port}", None, clients) as http:

        async def ask(body: object) -> None:
            status, answer = await post_json(http, "/v1/next-word", body)
            assert status == 200, answer

        async def type_words(text: str) -> None:
            generator = random.Random(text)
            for _ in range(typed):
                text += f" {generator.choice(WORDS)}"
                await ask({"context": text, "top_k": 5})

        for text in texts:  # fill the prefix cache
            await ask({"context": text})
        started = time.perf_counter()
        await asyncio.gather(*map(type_words, texts))
        return time.perf_counter() - started


if __name__ == "__main__":
    tyro.cli(main)
