"""Send mixtures of extreme requests to a server under the memory limit of `compose.yaml`, and report if one ends it.

    python -m benchmarks.memory_sweep --minutes 20 --memory-mb 1024 --seed 1

The server has default settings, and runs in a memory cgroup on two processors. The requests depend on the seed alone,
and each mixture of requests in flight on the seed and its number, so that one that ends the server can be sent again
with `--first NUMBER`. Every minute the memory is printed, and in the end the mixtures that took most of it. The exit
status is 1 where the server ended, was short of memory, or answered a request with 500.
"""

import heapq
import http.client
import json
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import tyro

from service.settings import BUNDLED
from tests.support.hostile.mixtures import Client, Mixture, mixtures
from tests.support.limited_server import CLOSED, SILENT, LimitedServer

_TIMEOUT = 180.0
_SHOWN = 5
_NAMES = {CLOSED: "closed", SILENT: "silent"}


@dataclass
class Sweep:
    """The results of all mixtures; memory in megabytes."""

    statuses: Counter[str] = field(default_factory=Counter)
    mixtures: int = 0
    peak: float = 0.0
    heaviest: list[tuple[float, int, str]] = field(default_factory=list)
    """Peak, number and kinds of the mixtures that took most memory."""

    def add(self, mixture: Mixture, statuses: "Counter[str]", peak: float) -> None:
        """Count a mixture."""
        self.statuses += statuses
        self.mixtures += 1
        self.peak = max(self.peak, peak)
        heapq.heappush(self.heaviest, (peak, mixture.number, f"{mixture.concurrency} at once: {mixture.summary}"))
        if len(self.heaviest) > _SHOWN:
            heapq.heappop(self.heaviest)


def main(
    minutes: float = 20.0,
    memory_mb: int = 1024,
    seed: int = 1,
    first: int = 0,
    processors: int = 2,
    max_clients: int = 64,
    model_dirs: tuple[Path, ...] = (BUNDLED,),
    options: str = "",
) -> None:
    """Print the memory of each minute and the results of all requests.

    Args:
        minutes: Duration in minutes.
        memory_mb: Limit of the server's memory.
        seed: Seed of the mixtures.
        first: Number of the first mixture.
        max_clients: Largest number of requests in flight.
        processors: Processors that the server runs on.
        model_dirs: Directories of bundles; images are sent where one of them classifies images.
        options: Further flags of `softserve serve`.
    """
    arguments = ["--model-dirs", *model_dirs, *options.split()]
    print(f"{platform.machine()}, {processors} of {os.cpu_count()} processors, {memory_mb} MB, seed {seed}, {options}")
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "server.log"
        with LimitedServer(memory_mb, *arguments, log=log, processors=processors) as server:
            sweep = _sweep(server, minutes, first, mixtures(seed, images=_has_images(server), max_clients=max_clients))
            failures = _failures(server, sweep)
    print(f"{sweep.mixtures} mixtures, {sum(sweep.statuses.values())} requests: {dict(sweep.statuses.most_common())}")
    print(f"at most {sweep.peak:.0f} MB resident; the heaviest mixtures:")
    for peak, number, kinds in sorted(sweep.heaviest, reverse=True):
        print(f"  {peak:5.0f} MB  {number}, {kinds}")
    for failure in failures:
        print(f"failure: {failure}")
    raise SystemExit(bool(failures))


def _sweep(server: LimitedServer, minutes: float, first: int, sent: Iterator[Mixture]) -> Sweep:
    sweep, started, shown, peak = Sweep(), time.monotonic(), 0, 0.0
    for mixture in islice(sent, first, None):
        server.reset_peak()
        statuses = _send(server, mixture)
        held = server.peak()
        peak = max(peak, held)
        sweep.add(mixture, statuses, held)
        if not server.alive:
            print(f"mixture {mixture.number} ended the server: {mixture.concurrency} at once: {mixture.summary}")
            break
        elapsed = (time.monotonic() - started) / 60
        if elapsed >= shown + 1 or elapsed >= minutes:
            shown = int(elapsed)
            print(f"minute {elapsed:5.1f}: at most {peak:.0f} MB, now {_described(server)}", flush=True)
            peak = 0.0
        if elapsed >= minutes:
            break
    return sweep


def _failures(server: LimitedServer, sweep: Sweep) -> list[str]:
    if not server.alive:
        return ["the server was killed for its memory" if server.over_limit else f"it ended: {server.output[-1000:]}"]
    found = ["the memory limit was not kept"] if server.over_limit else []
    found += [f"{sweep.statuses[status]} answers of {status}" for status in ("500", "502") if sweep.statuses[status]]
    if server.recovery(within=5.0) > 0.2:
        found.append("a normal request takes more than 0.2 s afterwards")
    return found


def _send(server: LimitedServer, mixture: Mixture) -> "Counter[str]":
    with ThreadPoolExecutor(mixture.concurrency) as clients:
        return Counter(clients.map(lambda client: _request(server, client), mixture.clients))


def _request(server: LimitedServer, client: Client) -> str:
    """Send a request and behave as its client does; return its status, or how it ended."""
    headers = {"Content-Type": "application/json"}
    if client.timeout_ms is not None:
        headers["X-Request-Timeout-Ms"] = str(client.timeout_ms)
    if client.manner == "patient":
        status = server.request("POST", client.path, client.body, headers, _TIMEOUT).status
        return _NAMES.get(status, str(status))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_TIMEOUT)
    try:
        connection.request("POST", client.path, client.body, headers)
        if client.manner == "reads slowly":
            response = connection.getresponse()
            time.sleep(client.pause)
            response.read(10_000)
        time.sleep(client.pause)
    except (OSError, http.client.HTTPException):
        return "closed"
    finally:
        connection.close()
    return client.manner


def _has_images(server: LimitedServer) -> bool:
    known = json.loads(server.request("GET", "/v1/models").body)["models"]
    return any(model["task"] == "image-classification" for model in known)


def _described(server: LimitedServer) -> str:
    """Return the use of memory: by the system's account, and by the metrics of the service."""
    parts = [f"{server.resident():.0f} MB"]
    if server.group is not None:
        parts.append(f"{server.group.usage >> 20} MB charged, limit reached {server.group.hits} times")
    parts += [f"{name} {size:.0f} MB" for name, size in server.memory_by_kind().items()]
    gauges = server.metrics()
    parts += [
        f"{name.removeprefix('softserve_')} {value / (1 << 20):.0f} MB"
        for name, value in sorted(gauges.items())
        if name.startswith("softserve_") and name.endswith("_bytes")
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    tyro.cli(main)
