"""Run a server in a child process under a memory limit, with clients that may misbehave."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from tests.support.memory_limit import (
    MemoryGroup,
    MemoryWatch,
    reset_peak,
    resident,
    resident_peak,
    status_field,
)

__all__ = ["CLOSED", "SILENT", "Answer", "LimitedServer", "json_of", "read_answer"]

CLOSED = 0
"""Status of a request whose connection ended without a response."""
SILENT = -1
"""Status of a request without a response within the client's timeout."""

_ROOT = Path(__file__).parents[2]
_JSON = {"Content-Type": "application/json"}
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_NORMAL = {"context": "we had a very", "top_k": 3}


@dataclass(frozen=True)
class Answer:
    """The response to a request."""

    status: int
    size: int = 0
    """Bytes of the body, or all bytes received on a raw socket."""
    seconds: float = 0.0
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class LimitedServer:
    """`softserve serve` on a free port of this machine, in a memory cgroup where one can be made.

    A context manager that starts it and waits until it is ready. Without a cgroup, `over_limit` tells afterwards
    whether it used more memory.
    """

    def __init__(self, megabytes: int, *arguments: object, log: Path, processors: int | None = None) -> None:
        self.megabytes = megabytes
        self._processors = processors
        self._arguments = list(map(str, arguments))
        self._log = log
        self.group: MemoryGroup | None = None
        self._watch: MemoryWatch | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process; raises `RuntimeError` with its output where it ends or is not ready in a minute."""
        command = [sys.executable, "-m", "service.cli", "serve", "--host", "127.0.0.1", "--port", "0", *self._arguments]
        if self._processors is not None and self._processors < (os.cpu_count() or 1):
            command = ["taskset", "--cpu-list", f"0-{self._processors - 1}", *command]
        self.group = MemoryGroup.create(self.megabytes)
        if self.group is not None:
            command = self.group.joining(command)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SOFTSERVE_")}
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=output, stderr=output)
        if self.group is None:
            self._watch = MemoryWatch(self.pid)
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self, number: int = signal.SIGKILL) -> int:
        """End the process and remove its cgroup; return the exit status."""
        if self.alive:
            self._process.send_signal(number)
        status = self._process.wait(60)
        if self._watch is not None:
            self._watch.close()
        if self.group is not None:
            self.group.close()
        return status

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def gone(self, within: float = 1.0) -> bool:
        """Return whether the process has ended; after a connection broke it may take a moment."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within)
        return not self.alive

    @property
    def output(self) -> str:
        """Return the server's output."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def resident(self) -> float:
        """Return the resident memory in megabytes."""
        return resident(self.pid)

    def peak(self) -> float:
        """Return the largest resident memory since `reset_peak`, in megabytes."""
        return resident_peak(self.pid)

    def reset_peak(self) -> None:
        reset_peak(self.pid)

    def memory_by_kind(self) -> dict[str, float]:
        """Return the megabytes of the heap and of mapped files (proc(5), RssAnon and RssFile)."""
        return {"heap": status_field(self.pid, "RssAnon"), "files": status_field(self.pid, "RssFile")}

    @property
    def over_limit(self) -> bool:
        """Return whether the limit ended a process or, without a cgroup, would have."""
        if self.group is not None:
            return self.group.kills > 0
        assert self._watch is not None
        return self._watch.peak > self.megabytes

    def connect(self, timeout: float = 30.0, *, receive_buffer: int | None = None) -> socket.socket:
        """Return a raw connection; with a small `receive_buffer` a slow reader delays responses."""
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(timeout)
        try:
            connection.connect(("127.0.0.1", self.port))
        except BaseException:
            connection.close()
            raise
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    @contextlib.contextmanager
    def connections(self, count: int, timeout: float = 30.0) -> Iterator[list[socket.socket]]:
        """Yield raw connections, as many of them as the server accepts, and close them in the end."""
        with contextlib.ExitStack() as stack:
            opened = []
            for _ in range(count):
                with contextlib.suppress(OSError):
                    opened.append(stack.enter_context(self.connect(timeout)))
            yield opened

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> Answer:
        """Return the response: `CLOSED` where the connection ended without one, `SILENT` after the timeout."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        started = time.perf_counter()
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before the body was read
                connection.request(method, path, body, dict(_JSON if headers is None else headers))
            response = connection.getresponse()
            content = response.read()
        except TimeoutError:
            return Answer(SILENT, seconds=time.perf_counter() - started)
        except (OSError, http.client.HTTPException):
            return Answer(CLOSED, seconds=time.perf_counter() - started)
        finally:
            connection.close()
        seconds = time.perf_counter() - started
        return Answer(response.status, len(content), seconds, content, {k.lower(): v for k, v in response.getheaders()})

    def post(self, path: str, body: object, timeout_ms: int | None = None) -> Answer:
        """Return the response to a JSON body, with a deadline if one is given."""
        headers = dict(_JSON) if timeout_ms is None else {**_JSON, "X-Request-Timeout-Ms": str(timeout_ms)}
        return self.request("POST", path, json.dumps(body).encode(), headers)

    def latency(self) -> float:
        """Return the latency of a normal request in seconds; infinite unless its status is 200."""
        answer = self.request("POST", "/v1/next-word", json.dumps(_NORMAL).encode(), timeout=5.0)
        return answer.seconds if answer.status == 200 else float("inf")

    def recovery(self, within: float = 1.0, under: float = 0.2) -> float:
        """Return the latency of the first normal request that takes less than `under`, else the best one in that time.

        Requests are sent until `within` seconds have passed.
        """
        end, best = time.perf_counter() + within, float("inf")
        while best >= under:
            best = min(best, self.latency())
            if time.perf_counter() >= end or not self.alive:
                break
        return best

    def metrics(self) -> dict[str, float]:
        """Return the samples of `/metrics`, summed over all labels but `le`, as `name` and `name{le}`."""
        found: dict[str, float] = {}
        text = self.request("GET", "/metrics").body.decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                bound = sample.labels.get("le")
                key = sample.name if bound is None else f"{sample.name}{{{bound}}}"
                found[key] = found.get(key, 0.0) + sample.value
        return found

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if not self.alive:
                raise RuntimeError(f"the server ended with status {self._process.returncode}: {self.output[-2000:]}")
            found = re.search(r"running on http://127\.0\.0\.1:(\d+)", self.output)
            if found:
                self.port = int(found[1])
                if self.request("GET", "/readyz", timeout=5.0).status == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the server was not ready in a minute: {self.output[-2000:]}")


def read_answer(connection: socket.socket, limit: int = 1 << 20) -> Answer:
    """Return the first response of a raw connection, until it pauses or ends."""
    started, received = time.perf_counter(), b""
    try:
        while len(received) < limit and (part := connection.recv(65536)):
            received += part
            if _complete(received):
                break
    except TimeoutError:
        if not received:
            return Answer(SILENT, seconds=time.perf_counter() - started)
    except OSError:
        pass
    found = _STATUS.match(received)
    status = int(found[1]) if found else CLOSED
    return Answer(status, len(received), time.perf_counter() - started, received)


def _complete(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    declared = re.search(rb"(?i)content-length: *(\d+)", head)
    return bool(end) and declared is not None and len(body) >= int(declared[1])


def json_of(values: Sequence[object] | Mapping[str, object]) -> bytes:
    """Return JSON without superfluous spaces."""
    return json.dumps(values, separators=(",", ":")).encode()
