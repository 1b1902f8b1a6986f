"""Measure how much many API keys cost: throughput with requests of one key and of 1,000, in turns on one server.

python -m benchmarks.many_keys
"""

import http.client
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tyro

from benchmarks.server import processor_seconds, serving
from service.settings import BUNDLED

__all__ = ["main"]


def main(
    model: str = "intents",
    path: str = "/v1/classify",
    text: str = "book a table for two tomorrow",
    keys: int = 1000,
    requests: int = 1600,
    clients: int = 32,
    rounds: int = 30,
) -> None:
    """Print a Markdown table: medians of the rounds.

    Args:
        model: A bundled model.
        path: An endpoint that takes `text`.
        text: The text of each request.
        keys: Keys of the service, all in use in the second half of each round.
        requests: Requests of half a round.
        clients: Connections.
        rounds: Rounds.
    """
    names = [f"key-number-{number:08}" for number in range(keys)]
    body = json.dumps({"text": text, "model": model}).encode()
    found: dict[int, list[tuple[float, float]]] = {1: [], keys: []}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "keys.toml"
        file.write_text("\n".join(f'[[keys]]\nname = "{each}"\nkey = "{each}"' for each in names), encoding="utf-8")
        with serving(BUNDLED, model, "--api-keys", str(file), seconds=120.0) as (port, process):
            _sent(port, path, body, names, requests // 4, clients)
            for number in range(rounds):
                for count in sorted(found, reverse=bool(number % 2)):
                    began, used = time.perf_counter(), processor_seconds(process)
                    _sent(port, path, body, names[:count], requests, clients)
                    seconds, used = time.perf_counter() - began, processor_seconds(process) - used
                    found[count].append((requests / seconds, 1e6 * used / requests))
    print("| keys in use | requests/s | ratio | processor time of a request | ratio |\n| --- | --- | --- | --- | --- |")
    for count, measured in found.items():
        rate, used = (statistics.median(each) for each in zip(*measured, strict=True))
        ratios = (
            statistics.median(ours[place] / theirs[place] for ours, theirs in zip(measured, found[1], strict=True))
            for place in (0, 1)
        )
        by_rate, by_time = (f"{each:.3f}" for each in ratios)
        print(f"| {count:,} | {rate:.0f} | {by_rate} | {used:.0f} us | {by_time} |")


def _sent(port: int, path: str, body: bytes, keys: Sequence[str], requests: int, clients: int) -> None:
    """Send requests over several connections, each with the next key; raises `RuntimeError` for a refused one."""
    turns = itertools.cycle(keys)

    def send(count: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(count):
            headers = {"Content-Type": "application/json", "X-API-Key": next(turns)}
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            answer = response.read()
            if response.status != 200:
                raise RuntimeError(f"status {response.status}: {answer.decode()}")
        connection.close()

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(send, [requests // clients] * clients))


if __name__ == "__main__":
    tyro.cli(main)
