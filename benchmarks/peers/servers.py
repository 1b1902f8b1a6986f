"""The servers that are compared: how each is started, requested and stopped."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load.client import Client, TransportError
from benchmarks.peers.classifier import TOP_K, Settings

__all__ = ["OURS", "PEERS", "Server", "best_labels", "running", "stop"]

_ROOT = Path(__file__).parents[2]
_SECONDS_TO_START = 120
_SECONDS_TO_STOP = 15
_SECONDS_TO_ANSWER = 60


def _text(text: str) -> dict[str, Any]:
    return {"text": text}


def _first(answer: Any) -> str:
    return str(answer["labels"][0]["label"])


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that responds to one text per request with its labels."""

    name: str
    command: Callable[[Settings], Sequence[str]]
    """Arguments of the server's Python."""
    body: Callable[[str], dict[str, Any]] = _text
    best: Callable[[Any], str] = _first
    """Returns the most probable label of a response."""
    path: str = "/classify"
    requirements: tuple[str, ...] = ()
    """Packages of its environment; without any it runs in this one, with its command alone."""
    parallel_processes: bool = True
    """Whether it runs a process with one thread per processor, or one process with a thread per processor."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables in addition to those of `Settings`; `{work}` in a value is the directory for the server's files."""

    def settings(self, bundle: Path, port: int, processors: int) -> Settings:
        split = (processors, 1) if self.parallel_processes else (1, processors)
        return Settings(bundle, port, *split)


def _ours(settings: Settings) -> list[str]:
    models, name, version = settings.bundle.parents[1], settings.bundle.parent.name, settings.bundle.name
    command = ["-m", "service.cli", "serve", "--port", str(settings.port), "--log-level", "warning"]
    return [*command, "--model-dirs", str(models), "--models", f"{name}:{version}"]


def _bentoml(settings: Settings) -> list[str]:
    service = "benchmarks.peers.bentoml_app:ClassifierService"
    return ["-m", "bentoml", "serve", service, "--host", "127.0.0.1", "--port", str(settings.port)]


OURS = Server(
    name="Softserve",
    command=_ours,
    path="/v1/classify",
    body=lambda text: {"text": text, "top_k": TOP_K},
    best=lambda answer: _first(answer["results"][0]),
    parallel_processes=False,
)
"""`softserve serve` with its defaults, as a user would start it."""

PEERS = {
    "fastapi": Server(
        name="fastapi",
        command=lambda settings: ["-m", "benchmarks.peers.fastapi_app"],
        requirements=("fastapi==0.165.0", "uvicorn[standard]==0.54.0"),
    ),
    "litserve": Server(
        name="litserve",
        command=lambda settings: ["-m", "benchmarks.peers.litserve_app"],
        requirements=("litserve==0.2.19",),
    ),
    "bentoml": Server(
        name="bentoml",
        command=_bentoml,
        requirements=("bentoml==1.4.39",),
        body=lambda text: {"texts": [text]},
        best=lambda answer: _first(answer[0]),
        parallel_processes=False,  # its batches then go to one process, which is faster than two of half a batch
        environment=(("BENTOML_DO_NOT_TRACK", "True"), ("BENTOML_HOME", "{work}/bentoml")),
    ),
}


@contextmanager
def running(server: Server, python: Path, settings: Settings, text: str, work: Path) -> Iterator[int]:
    """Run a server: wait until it responds to the text, yield its process id, and stop it in the end.

    Raises `RuntimeError` where it does not start; its output is in `work`, NAME.log.
    """
    log = work / f"{server.name}.log"
    environment = dict(os.environ)
    if server.requirements:
        threads = {"OMP_NUM_THREADS": str(settings.threads), "TOKENIZERS_PARALLELISM": "false"}
        more = {name: value.format(work=work) for name, value in server.environment}
        environment |= settings.environment() | threads | more
    command = [str(python), *server.command(settings)]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait(server, settings.port, process, text, log)
        yield process.pid
    finally:
        stop(process)


def best_labels(server: Server, port: int, texts: Sequence[str]) -> list[str]:
    """Return the most probable label of each text; raises `TransportError`, and `RuntimeError` for error statuses."""
    return asyncio.run(_best_labels(server, port, texts))


async def _best_labels(server: Server, port: int, texts: Sequence[str]) -> list[str]:
    found = []
    async with Client(f"http://127.0.0.1:{port}", None, 1) as client:
        for text in texts:
            body = json.dumps(server.body(text)).encode()
            answer = await client.post(server.path, body, {}, _SECONDS_TO_ANSWER)
            if answer.status != 200:
                raise RuntimeError(f"it answers {answer.status}: {answer.content[:200]!r}")
            found.append(server.best(json.loads(answer.content)))
    return found


def _wait(server: Server, port: int, process: subprocess.Popen[bytes], text: str, log: Path) -> None:
    end, problem = time.monotonic() + _SECONDS_TO_START, "it did not listen"
    while time.monotonic() < end:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
            raise RuntimeError(f"it ended with status {process.returncode}: {lines[-1]} ({log})")
        try:
            best_labels(server, port, [text])
            return
        except TransportError:
            pass
        except RuntimeError as error:  # as long as it loads
            problem = str(error)
        time.sleep(0.2)
    raise RuntimeError(f"it was not ready within {_SECONDS_TO_START} s: {problem} ({log})")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate the server, then kill its remaining processes, which are a session of their own."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_SECONDS_TO_STOP)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
