r"""Requests for vectors of one text each: the service against another server with the same weights.

    pip install "softserve[import]" sentence-transformers
    softserve-train import path/to/all-MiniLM-L6-v2 --output my-models
    python -m benchmarks.embedding_service path/to/all-MiniLM-L6-v2 my-models --name all-minilm-l6-v2

The other is FastAPI with sentence-transformers, or Infinity from an environment of its own, since it needs older
versions of these libraries:

    python -m venv infinity
    infinity/bin/pip install "infinity_emb[server]==0.0.78" "sentence-transformers<4" "transformers<4.49" \
        "optimum<1.27" "datasets<4" "pyarrow<20" "numpy<2" torch
    python -m benchmarks.embedding_service ... --infinity infinity/bin/infinity_emb

Both servers run on this machine, with the client; in each round they take turns at every number of connections. Rates
are medians of the rounds, ratios medians of the rounds' ratios. Memory is the resident set at the end.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.load.client import Client
from benchmarks.peers.texts import make_texts
from benchmarks.server import serving, wait_until_ready
from tests.support.ports import free_port

_TIMEOUT = 60.0
_NAME = "encoder"
"""Name of the model of the other server."""


def main(
    directory: tyro.conf.Positional[Path],
    models: tyro.conf.Positional[Path],
    name: str,
    connections: tuple[int, ...] = (1, 16, 64),
    rounds: int = 5,
    seconds: float = 4,
    infinity: Path | None = None,
) -> int:
    """Print rates and memory.

    Args:
        directory: The directory of sentence-transformers.
        models: The model directory with its bundle.
        name: Name of the bundle.
        connections: Numbers of concurrent connections.
        rounds: Rounds in which both take turns, after one that warms up.
        seconds: Seconds of load on each in a round.
        infinity: The command `infinity_emb`, to compare with it.
    """
    texts = make_texts(500)
    own = _Requests("/embed", [json.dumps({"inputs": text}).encode() for text in texts])
    peer = own
    if infinity is not None:
        peer = _Requests("/embeddings", [json.dumps({"model": _NAME, "input": text}).encode() for text in texts])
    with serving(models, name) as ours, _peer(directory, infinity) as theirs:
        found: dict[int, list[tuple[float, float]]] = {count: [] for count in connections}
        for number in range(rounds + 1):
            for count in connections:
                sides = ((ours[0], own), (theirs[0], peer))
                rates = [asyncio.run(_rate(port, requests, count, seconds)) for port, requests in sides]
                if number:
                    found[count].append((rates[0], rates[1]))
        memory = [_megabytes(process) for _, process in (ours, theirs)]
    other_name = "FastAPI with sentence-transformers" if infinity is None else "Infinity"
    print(f"| connections | Softserve, requests/s | {other_name} | ratio |")
    print("| --- | --- | --- | --- |")
    for count, pairs in found.items():
        mine, other = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(one / two for one, two in pairs)
        print(f"| {count} | {mine:.0f} | {other:.0f} | {ratio:.2f} |")
    print(f"| memory, MB | {memory[0]:.0f} | {memory[1]:.0f} | |")
    return 0


@dataclass(frozen=True, slots=True)
class _Requests:
    """The requests to a server: their path and bodies."""

    path: str
    bodies: list[bytes]


@contextmanager
def _peer(directory: Path, infinity: Path | None) -> Iterator[tuple[int, int]]:
    port = free_port()
    if infinity is None:
        ready = "/readyz"
        command = [sys.executable, "-m", "benchmarks.peers.sentence_transformers_app", str(directory), str(port)]
    else:
        ready = "/health"
        command = [str(infinity), "v2", "--model-id", str(directory.resolve()), "--served-model-name", _NAME]
        command += ["--port", str(port), "--device", "cpu", "--engine", "torch", "--log-level", "warning"]
    server = subprocess.Popen(command)
    try:
        wait_until_ready(port, 120, path=ready)
        yield port, server.pid
    finally:
        server.terminate()
        server.wait()


async def _rate(port: int, requests: _Requests, connections: int, seconds: float) -> float:
    """Return requests per second; raises for a status other than 200."""
    count, bodies = 0, requests.bodies
    async with Client(f"http://127.0.0.1:{port}", None, connections) as client:

        async def send(first: int) -> None:
            nonlocal count
            while time.perf_counter() < end:
                response = await client.post(requests.path, bodies[(first + count) % len(bodies)], {}, _TIMEOUT)
                if response.status != 200:
                    raise RuntimeError(f"{response.status} {response.content[:200]!r}")
                count += 1

        start = time.perf_counter()
        end = start + seconds
        await asyncio.gather(*(send(7 * first) for first in range(connections)))
        return count / (time.perf_counter() - start)


def _megabytes(process: int) -> float:
    """Return the resident set of a process (Linux: proc(5))."""
    fields = Path(f"/proc/{process}/status").read_text(encoding="ascii").split("VmRSS:")[1].split()
    return int(fields[0]) / 1024


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
