"""Send random requests to all endpoints of a server under a memory limit, and report server errors.

    python -m benchmarks.fuzz --requests 20000 --seed 1

Requests are valid, nearly valid, random JSON, random bytes, methods, paths and headers, made by hypothesis; a seed
makes the same ones again. The exit status is 1 where an answer was 500 or 502 or any other error of the server that
neither load nor a deadline explains, where a request was not answered, where an answer was larger than was asked for,
or where the event loop was blocked too long too often.
"""

import contextlib
import http.client
import os
import platform
import queue
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from hypothesis import HealthCheck, Phase, given, seed, settings

from service.settings import BUNDLED
from tests.support.hostile.requests import Request, requests
from tests.support.limited_server import CLOSED, SILENT, LimitedServer

_LOAD = frozenset({429, 503, 504})
_LAG = "softserve_event_loop_lag_seconds"
_MAX_LAG = 0.1
_SHARE = 0.999
_TIMEOUT = 60.0
_SHOWN = 10
_SHOWN_BYTES = 400


@dataclass
class Findings:
    """The results of all requests."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    largest: int = 0
    violations: list[str] = field(default_factory=list)
    in_flight: dict[int, Request] = field(default_factory=dict)
    """Request that each client waits for."""
    ended: bool = False
    """Whether the server's process ended, after which no request is sent."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, request: Request, status: int, size: int) -> None:
        """Count a response and record its violations."""
        with self.lock:
            self.statuses[_endpoint(request), status] += 1
            self.largest = max(self.largest, size)
            wrong = _wrong(request, status, size)
            if wrong:
                self.violations.append(f"{wrong}: {_shown(request)}")

    def end(self, cause: str) -> None:
        """Record the requests in flight when the server's process ended."""
        with self.lock:
            if not self.ended:
                self.ended = True
                self.violations.insert(0, f"{cause}; in flight were {', '.join(map(_shown, self.in_flight.values()))}")


def _shown(request: Request) -> str:
    return repr(request.wire()[:_SHOWN_BYTES])


def main(
    requests: int = 20_000,
    seed: int = 1,
    clients: int = 8,
    memory_mb: int = 1024,
    model_dirs: tuple[Path, ...] = (BUNDLED,),
    options: str = "",
) -> None:
    """Print a table of statuses and the violations.

    Args:
        requests: Number of requests.
        seed: Seed of the requests.
        clients: Connections that send them.
        memory_mb: Limit of the server's memory.
        model_dirs: Directories of bundles.
        options: Further flags of `softserve serve`.
    """
    with tempfile.TemporaryDirectory() as directory:
        arguments = ["--model-dirs", *model_dirs, *options.split()]
        with LimitedServer(memory_mb, *arguments, log=Path(directory) / "server.log") as server:
            before, lags = server.resident(), server.metrics()
            started = time.perf_counter()
            findings = _fuzz(server, requests, seed, clients)
            seconds = time.perf_counter() - started
            if server.alive:
                time.sleep(2)
                lag = lag_quantile(lags, server.metrics(), _SHARE)
                findings.violations += [] if lag is None or lag <= _MAX_LAG else [f"event loop lag {lag} s"]
            else:
                lag = None
            print(f"{platform.machine()}, {os.cpu_count()} processors, {memory_mb} MB, seed {seed}")
            print(f"{requests} requests in {seconds:.0f} s")
            _print_statuses(findings)
            known = "not exported" if lag is None else f"at most {lag} s"
            print(f"event loop lag, p99.9: {known}; largest answer {findings.largest:,} B")
            print(f"memory {before:.0f} MB before, {server.resident():.0f} MB after, {server.peak():.0f} MB at most")
    print(f"{len(findings.violations)} violations")
    for violation in findings.violations[:_SHOWN]:
        print(f"  {violation}")
    raise SystemExit(bool(findings.violations))


def lag_quantile(before: Mapping[str, float], after: Mapping[str, float], share: float) -> float | None:
    """Return the bound of the histogram's bucket that holds a quantile of the event loop's lag; None without one."""
    total = after.get(f"{_LAG}_count", 0.0) - before.get(f"{_LAG}_count", 0.0)
    buckets = [name for name in after if name.startswith(f"{_LAG}_bucket{{")]
    if not total or not buckets:
        return None
    bounds = sorted((float(name.partition("{")[2].rstrip("}")), name) for name in buckets)
    return next(bound for bound, name in bounds if after[name] - before.get(name, 0.0) >= share * total)


def _fuzz(server: LimitedServer, count: int, number: int, clients: int) -> Findings:
    findings = Findings()
    waiting: queue.Queue[Request | None] = queue.Queue(4 * clients)
    threads = [threading.Thread(target=_client, args=(server, waiting, findings)) for _ in range(clients)]
    for thread in threads:
        thread.start()

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(requests())
    def send(request: Request) -> None:
        waiting.put(request)

    try:
        send()
    finally:
        for _ in threads:
            waiting.put(None)
        for thread in threads:
            thread.join()
    return findings


def _client(server: LimitedServer, waiting: "queue.Queue[Request | None]", findings: Findings) -> None:
    connection: socket.socket | None = None
    while (request := waiting.get()) is not None:
        if findings.ended:
            continue
        findings.in_flight[threading.get_ident()] = request
        connection, status, size = _exchange(server, connection, request)
        if status == CLOSED and server.gone():
            findings.end(f"the server ended, {'killed for its memory' if server.over_limit else 'of itself'}")
        else:
            findings.add(request, status, size)
    if connection is not None:
        connection.close()


def _exchange(
    server: LimitedServer, connection: socket.socket | None, request: Request
) -> tuple[socket.socket | None, int, int]:
    """Send a request; returns the connection where it can go on, the status and the size of the answer."""
    reused = connection is not None
    try:
        connection = connection or server.connect(_TIMEOUT)
        connection.sendall(request.wire())
        response = http.client.HTTPResponse(connection, method=request.method)
        response.begin()
        size = len(response.read())
    except TimeoutError:
        status, size = SILENT, 0
    except (OSError, http.client.HTTPException, ValueError):
        if connection is not None:
            connection.close()
        return _exchange(server, None, request) if reused else (None, CLOSED, 0)
    else:
        if response.status < 400 and not response.will_close:
            return connection, response.status, size
        status = response.status
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.close()
    return None, status, size


def _endpoint(request: Request) -> str:
    path = request.path.decode("latin-1")
    return path if path.startswith("/v1/") and path.isascii() and path.count("/") == 2 else "others"


def _wrong(request: Request, status: int, size: int) -> str | None:
    if status in (CLOSED, SILENT):
        return "no answer"
    if status >= 500 and status not in _LOAD:
        return f"status {status}"
    if size > request.asked_for or (status != 200 and size > 20_000):
        return f"status {status} with {size} bytes"
    return None


def _print_statuses(findings: Findings) -> None:
    endpoints = sorted({endpoint for endpoint, _ in findings.statuses})
    statuses = sorted({status for _, status in findings.statuses}, key=lambda status: (status in _LOAD, status))
    heads = [f"{status} (load)" if status in _LOAD else str(status) for status in statuses]
    print(f"| endpoint | {' | '.join(heads)} |")
    print("| --- " * (len(statuses) + 1) + "|")
    for endpoint in endpoints:
        counts = [str(findings.statuses[endpoint, status]) for status in statuses]
        print(f"| {endpoint} | {' | '.join(counts)} |")


if __name__ == "__main__":
    tyro.cli(main)
