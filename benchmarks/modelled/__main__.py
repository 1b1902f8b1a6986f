"""Measure the time of the service itself: requests/s on one core, where a batch takes a modelled time and no core.

    python -m benchmarks.modelled
    python -m benchmarks.modelled --connections 64 --texts 1 --rounds 10

The model is a classifier whose backend sleeps, as a thread does that waits for an accelerator. Next to it run a
Starlette application that only parses and answers the same requests, and the tokenizer in a process by itself: the
ceilings of requests of one text and of many. All take turns in each round, on the first of the usable cores; `wrk`,
which loads the servers, has the others. Medians over rounds are printed.
"""

import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.modelled.tokenization import tokenized
from benchmarks.peers.load import LoadResult, find_wrk, measure
from benchmarks.peers.servers import Server, running
from benchmarks.peers.texts import make_texts
from benchmarks.server import processor_seconds
from models.backend.cpus import usable_cpus
from service.engine.cost_model import Terms
from service.settings import BUNDLED
from tests.support.ports import free_port

BUNDLE = BUNDLED / "intents" / "2"
_PATH = "/v1/classify"
_WARM_UP = 2
"""Seconds of load before the first measurement of a server."""
_ASSUMED = Terms(500e-6, 0.0, 0.2e-6)
"""Seconds of a batch on an accelerator: the launch of some 100 kernels, and 5,000,000 tokens/s of a small encoder."""
_SERVICE, _BARE = "Softserve", "Starlette"


@dataclass(frozen=True, slots=True)
class Measured:
    """A server under one load."""

    load: LoadResult
    processor: float
    """Processor seconds of the server for a request."""


def main(
    connections: tuple[int, ...] = (1, 16, 64, 256),
    texts: tuple[int, ...] = (1, 32),
    rounds: int = 5,
    seconds: int = 4,
    fixed_us: float = 1e6 * _ASSUMED.fixed,
    item_us: float = 1e6 * _ASSUMED.item,
    token_us: float = 1e6 * _ASSUMED.token,
) -> None:
    """Print a table in Markdown.

    Args:
        connections: Numbers of concurrent connections.
        texts: Numbers of texts of a request.
        rounds: Rounds, in which all take turns.
        seconds: Seconds of each measurement.
        fixed_us: Microseconds of a batch.
        item_us: Microseconds of a text, in addition.
        token_us: Microseconds of a token, in addition.
    """
    find_wrk()
    modelled = ["-m", "benchmarks.modelled.backend", str(fixed_us), str(item_us), str(token_us)]
    servers = [
        Server(
            name=_SERVICE,
            command=lambda settings: [
                *(*modelled, "serve", "--port", str(settings.port), "--log-level", "warning"),
                *(
                    "--model-dirs",
                    str(BUNDLED),
                    "--models",
                    "intents:2",
                    "--max-batch-items",
                    "256",
                    "--max-queue-items",
                    "65536",
                ),
            ],
            path=_PATH,
            best=lambda answer: str(answer["results"][0]["labels"][0]["label"]),
        ),
        Server(
            name=_BARE,
            command=lambda settings: ["-m", "benchmarks.modelled.bare_app", str(settings.port)],
            path=_PATH,
            best=lambda answer: str(answer["results"][0]["labels"][0]["label"]),
        ),
    ]
    results: dict[tuple[int, int, str], list[Measured]] = defaultdict(list)
    ceilings: dict[int, list[float]] = defaultdict(list)
    sample = make_texts(500)
    with tempfile.TemporaryDirectory() as directory, _one_core():
        for number in range(rounds):
            _say(f"round {number + 1} of {rounds}")
            for many in texts:
                ceilings[many].append(tokenized(BUNDLE, sample, many))
                for server in servers:
                    for count, found in _measured(server, sample, many, connections, seconds, Path(directory)):
                        results[many, count, server.name].append(found)
    print(
        f"{platform.machine()}, one of {usable_cpus()} cores for a server; a batch takes {fixed_us:g} us, "
        f"{item_us:g} us a text and {token_us:g} us a token; {rounds} rounds of {seconds} s\n"
    )
    print("\n".join(_table(results, ceilings)))


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """Let processes that are started within the context use the first core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def _other_cores() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    others = set(range(os.cpu_count() or 1)) - cores
    os.sched_setaffinity(0, others or cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _measured(
    server: Server, sample: Sequence[str], many: int, connections: Sequence[int], seconds: int, work: Path
) -> Iterator[tuple[int, Measured]]:
    bodies = work / "bodies.jsonl"
    asked = [sample[first : first + many] for first in range(0, len(sample), many)]
    lines = (json.dumps({"text": some if many > 1 else some[0], "top_k": 5}) for some in asked)
    bodies.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    settings = server.settings(BUNDLE, free_port(), 1)
    with running(server, Path(sys.executable), settings, sample[0], work) as process, _other_cores():
        measure(settings.port, server.path, bodies, max(connections), _WARM_UP)
        for count in connections:
            before = processor_seconds(process)
            load = measure(settings.port, server.path, bodies, count, seconds)
            used = processor_seconds(process) - before
            if load.errors:
                raise RuntimeError(f"{server.name}: {load.errors} errors")
            _say(f"{server.name}, texts: {many}, connections: {count}, requests/s: {load.rate:.0f}")
            yield count, Measured(load, used / (load.rate * seconds))


def _table(results: dict[tuple[int, int, str], list[Measured]], ceilings: dict[int, list[float]]) -> Iterator[str]:
    yield "| texts | connections | server | requests/s | p50 | p99 | core time | of Starlette | of tokenization |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for (many, count, name), found in results.items():
        rate, p50, p99 = (
            statistics.median(getattr(each.load, key) for each in found) for key in ("rate", "p50", "p99")
        )
        processor = statistics.median(each.processor for each in found)
        bare = results[many, count, _BARE]
        pairs = zip(found, bare, ceilings[many], strict=False)
        ratios = [(one.load.rate / other.load.rate, one.load.rate / ceiling) for one, other, ceiling in pairs]
        of_bare, of_ceiling = (statistics.median(values) for values in zip(*ratios, strict=True))
        yield (
            f"| {many} | {count} | {name} | {rate:.0f} | {p50:.2f} ms | {p99:.2f} ms | {1e6 * processor:.0f} us | "
            f"{of_bare:.2f} | {of_ceiling:.2f} |"
        )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    tyro.cli(main)
