"""Measure the cache of results: throughput with and without it where half of the requests are repeated.

    python -m benchmarks.result_cache

Each side is a server of its own, one after the other; requests of one sentence over HTTP, from several threads. Answers
to the same sentence are compared bit for bit within a side.
"""

import http.client
import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import tyro

from benchmarks.server import serving
from service.settings import BUNDLED
from tests.support.memory_limit import resident

__all__ = ["main"]

_WORDS = (
    "heute",
    "morgen",
    "gehen",
    "wir",
    "nicht",
    "ins",
    "Kino",
    "weil",
    "das",
    "Wetter",
    "gut",
    "ist",
    "und",
    "Anna",
)


def main(model: str = "de-en", path: str = "/v1/translate", requests: int = 10_000, clients: int = 16) -> None:
    """Print a Markdown table.

    Args:
        model: A bundled model.
        path: An endpoint that takes `text`.
        requests: Number of requests; half of the sentences are sent twice.
        clients: Connections.
    """
    generator = random.Random(0)
    sentences = [f"{' '.join(generator.choices(_WORDS, k=8))} {number}." for number in range(requests // 2)]
    sent = sentences * 2
    generator.shuffle(sent)
    print("| cache | requests/s | ratio | different answers to a sentence | memory |\n| --- | --- | --- | --- | --- |")
    before = 0.0
    for megabytes in (0, 64):
        with serving(BUNDLED, model, "--result-cache-mb", str(megabytes), seconds=120.0) as (port, pid):
            started = time.perf_counter()
            with ThreadPoolExecutor(clients) as pool:
                shares = [sent[client::clients] for client in range(clients)]
                found = [pair for some in pool.map(lambda texts: _ask(port, path, texts), shares) for pair in some]
            rate = len(found) / (time.perf_counter() - started)
            answers: dict[str, set[bytes]] = {}
            for text, answer in found:
                answers.setdefault(text, set()).add(answer)
            different = sum(len(each) > 1 for each in answers.values())
            before = before or rate
            print(
                f"| {megabytes} MB | {rate:.1f} | {rate / before:.2f} | {different} | {resident(pid):.0f} MB |",
                flush=True,
            )


def _ask(port: int, path: str, texts: Sequence[str]) -> list[tuple[str, bytes]]:
    connection, found = http.client.HTTPConnection("127.0.0.1", port, timeout=120), []
    for text in texts:
        connection.request("POST", path, json.dumps({"text": text}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {content[:200].decode()}")
        found.append((text, content))
    connection.close()
    return found


if __name__ == "__main__":
    tyro.cli(main)
