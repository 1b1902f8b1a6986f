"""A server and its requests, shared by the benchmarks of the service."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.load.client import Client
from tests.support.ports import free_port

__all__ = ["post_json", "processor_seconds", "serving", "wait_until_ready"]

_TIMEOUT = 60.0
"""Seconds within which a response must be complete."""


def wait_until_ready(port: int, seconds: float = 30.0, *, path: str = "/readyz") -> None:
    """Wait until a server has loaded its models, and says so at a path; raises `TimeoutError` after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except ConnectionError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise TimeoutError("the server did not become ready")


@contextmanager
def serving(
    model_dir: Path, models: str | Sequence[str], *flags: str, seconds: float = 30.0
) -> Iterator[tuple[int, int]]:
    """Run `softserve serve` with one model, or several; yields its port and process id once it is ready.

    Raises `TimeoutError` where it is not within so many seconds.
    """
    port = free_port()
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), "--log-level", "warning"]
    names = [models] if isinstance(models, str) else models
    server = subprocess.Popen([*command, "--model-dirs", str(model_dir), "--models", *names, *flags])
    try:
        wait_until_ready(port, seconds)
        yield port, server.pid
    finally:
        server.terminate()
        server.wait()


def processor_seconds(process: int) -> float:
    """Return the processor time of all threads of a process, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def post_json(
    client: Client, path: str, body: object, headers: Mapping[str, str] | None = None, seconds: float = _TIMEOUT
) -> tuple[int, Any]:
    """Send JSON; return the status and the parsed body. Raises `TransportError`."""
    answer = await client.post(path, json.dumps(body).encode(), headers or {}, seconds)
    return answer.status, json.loads(answer.content)
