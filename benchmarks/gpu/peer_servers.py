"""The made MiniLM classifier by other servers on the same device, one after the other, with the same load and texts.

FastAPI without batching and LitServe run the bundle's graph by onnxruntime; Triton runs it by its Python backend with
dynamic batching, Infinity and vLLM's pooling run the directory in Hugging Face's layout. LitServe, Infinity, Triton and
vLLM are measured where they are installed in this environment; Triton, Infinity and vLLM have not been yet.
"""

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.clients import Clients, clients
from benchmarks.gpu.made_models import MINILM, source_of
from benchmarks.gpu.results import Context, Unavailable, Values, check_installed
from benchmarks.gpu.subjects import SUBJECTS, texts
from benchmarks.load.client import Client, TransportError
from benchmarks.load.options import LoadOptions
from benchmarks.peers.classifier import DELAY, Settings
from benchmarks.peers.servers import stop
from models.backend.cpus import usable_cpus
from tests.support.ports import free_port

__all__ = ["LOADS", "SERVERS", "PeerServer", "row_name", "run"]

_ROOT = Path(__file__).parents[2]
LOADS, _SMALL_LOADS = ((1, 256), (32, 64)), ((1, 4), (4, 2))
"""Texts in a request, and connections."""
_WARM_UP, _SECONDS = 5.0, 4.0
_SMALL_WARM_UP, _SMALL_SECONDS = 0.2, 0.3
_READY_SECONDS = 120.0
_TEXTS = 500
_DEADLINE_MS = 30_000


@dataclass(frozen=True, kw_only=True)
class PeerServer:
    """A server that responds to texts with their labels."""

    name: str
    modules: tuple[str, ...]
    """Modules without which it is not installed."""
    command: Callable[[Context, Settings], Sequence[str]]
    """The command line; it may write files to the working directory of the context."""
    body: Callable[[list[str]], object]
    """Returns the JSON of a request."""
    count: Callable[[Any], int]
    """Returns the number of results in the JSON of a response."""
    path: str = "/classify"


class PeerRequests:
    """The requests of a load: always the same number of texts."""

    def __init__(self, server: str, each: int) -> None:
        self._server = next(found for found in SERVERS if found.name == server)
        self.path, self._each = self._server.path, each
        self._texts = itertools.cycle(texts(MINILM, _TEXTS))

    def body(self) -> bytes:
        return json.dumps(self._server.body(list(itertools.islice(self._texts, self._each)))).encode()

    def error_in(self, content: bytes) -> str | None:
        try:
            found = self._server.count(json.loads(content))
        except (ValueError, KeyError, TypeError, IndexError):
            return "the response has no results"
        return None if found == self._each else f"{found} results for {self._each} texts"


def _one_or_several(texts: list[str]) -> object:
    return {"text": texts[0] if len(texts) == 1 else texts}


def _answers(answer: Any) -> int:
    found = answer if isinstance(answer, list) else [answer]
    return len([each["labels"][0]["label"] for each in found])


def _module(name: str) -> Callable[[Context, Settings], Sequence[str]]:
    return lambda context, settings: [sys.executable, "-m", name]


def _infinity(context: Context, settings: Settings) -> Sequence[str]:
    model, device = str(source_of(context.work, MINILM)), context.device.partition(":")[0]
    options = ["--model-id", model, "--served-model-name", MINILM, "--device", device, "--batch-size", "256"]
    return [sys.executable, "-m", "infinity_emb.cli", "v2", *options, "--port", str(settings.port)]


def _vllm(context: Context, settings: Settings) -> Sequence[str]:
    options = ["--runner", "pooling", "--convert", "classify", "--served-model-name", MINILM]
    program = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(source_of(context.work, MINILM))]
    return [*program, *options, "--port", str(settings.port)]


_TRITON_CONFIG = """\
name: "classifier"
backend: "python"
max_batch_size: 256
input [{{ name: "TEXT", data_type: TYPE_STRING, dims: [1] }}]
output [{{ name: "LABELS", data_type: TYPE_STRING, dims: [5] }}]
instance_group [{{ kind: {kind}, count: 1 }}]
dynamic_batching {{ max_queue_delay_microseconds: {delay} }}
"""
_TRITON_MODEL = """\
import numpy as np
import triton_python_backend_utils as triton

from benchmarks.peers.classifier import Classifier, Settings


class TritonPythonModel:
    def initialize(self, args):
        settings = Settings.from_environment()
        self.classifier = Classifier.warm(settings.bundle, settings.threads, settings.device)

    def execute(self, requests):
        arrays = [triton.get_input_tensor_by_name(each, "TEXT").as_numpy()[:, 0] for each in requests]
        found = iter(self.classifier.classify([text.decode() for array in arrays for text in array]))
        labels = [[[each["label"] for each in next(found)["labels"]] for _ in array] for array in arrays]
        return [
            triton.InferenceResponse([triton.Tensor("LABELS", np.array(rows, dtype=np.object_))]) for rows in labels
        ]
"""


def _triton(context: Context, settings: Settings) -> Sequence[str]:
    """Write a model repository, and return the command of the server; raises `Unavailable` without its program."""
    repository = context.work / "triton"
    version = repository / "classifier" / "1"
    version.mkdir(parents=True, exist_ok=True)
    kind = "KIND_GPU" if context.on_gpu else "KIND_CPU"
    config = _TRITON_CONFIG.format(kind=kind, delay=round(1e6 * DELAY))
    (version.parent / "config.pbtxt").write_text(config, encoding="utf-8")
    (version / "model.py").write_text(_TRITON_MODEL, encoding="utf-8")
    program = shutil.which("tritonserver")
    if program is None:
        raise Unavailable("not installed: the program tritonserver")
    ports = ["--http-port", str(settings.port), "--allow-grpc", "false", "--allow-metrics", "false"]
    return [program, "--model-repository", str(repository), *ports]


def _triton_body(texts: list[str]) -> object:
    return {"inputs": [{"name": "TEXT", "shape": [len(texts), 1], "datatype": "BYTES", "data": texts}]}


SERVERS = (
    PeerServer(
        name="FastAPI, no batching",
        modules=("fastapi", "uvicorn"),
        command=_module("benchmarks.peers.fastapi_app"),
        body=_one_or_several,
        count=_answers,
    ),
    PeerServer(
        name="LitServe",
        modules=("litserve",),
        command=_module("benchmarks.peers.litserve_app"),
        body=_one_or_several,
        count=_answers,
    ),
    PeerServer(
        name="Infinity",
        modules=("infinity_emb",),
        command=_infinity,
        body=lambda texts: {"model": MINILM, "input": texts},
        count=lambda answer: len([each[0]["label"] for each in answer["data"]]),
    ),
    PeerServer(
        name="Triton",
        modules=(),
        command=_triton,
        path="/v2/models/classifier/infer",
        body=_triton_body,
        count=lambda answer: int(answer["outputs"][0]["shape"][0]),
    ),
    PeerServer(
        name="vLLM, pooling",
        modules=("vllm",),
        command=_vllm,
        body=lambda texts: {"model": MINILM, "input": texts},
        count=lambda answer: len([each["label"] for each in answer["data"]]),
    ),
)
"""All servers, FastAPI and LitServe as in `benchmarks.serving`."""


def row_name(server: str, each: int, connections: int) -> str:
    """Return the name of a row."""
    return f"{MINILM}, {each} a request, {connections} connections, {server}"


def run(context: Context) -> None:
    """Write a row of each server and load."""
    with clients() as load:
        for server in SERVERS:
            _measure(context, server, load)


def _measure(context: Context, server: PeerServer, load: Clients) -> None:
    loads = _SMALL_LOADS if context.small else LOADS
    rows = {row_name(server.name, *each): each for each in loads}
    if all(map(context.done, rows)):
        return
    try:
        check_installed(server.modules)
        if time.monotonic() > context.deadline:
            context.skip(rows)
            return
        with _running(context, server) as url:
            for row, (each, connections) in rows.items():
                context.measure(row, partial(_load, context, server, load, url, each, connections))
    except Exception as error:  # the others are compared
        context.fail(list(rows), error)


def _load(context: Context, server: PeerServer, load: Clients, url: str, each: int, connections: int) -> Values:
    times = (_SMALL_SECONDS, _SMALL_WARM_UP) if context.small else (_SECONDS, _WARM_UP)
    options = LoadOptions(
        seconds=times[0], warm_up=times[1], connections=connections, texts_per_request=each, timeout_ms=_DEADLINE_MS
    )
    found = load.load(url, partial(PeerRequests, server.name, each), each, options)
    if not found["answered"]:
        raise RuntimeError(f"no request was answered: {found['statuses']}, {found['failures']}, {found['details']}")
    return {
        "requests_per_second": found["requests_per_second"],
        "texts_per_second": found["texts_per_second"],
        "p50_ms": found["latency_ms"]["p50"],
        "p99_ms": found["latency_ms"]["p99"],
        "failed": sum(found["failures"].values()),
        "client_processor_share": found["client"]["processor_share"],
    }


@contextmanager
def _running(context: Context, server: PeerServer) -> Iterator[str]:
    """Run a server, and yield its address once it answers a text; raises `RuntimeError` where it does not."""
    bundle = next(each for each in SUBJECTS if each.name == MINILM).bundle(context)
    processes = 1 if context.on_gpu else usable_cpus()
    settings = Settings(bundle, free_port(), processes, max(1, usable_cpus() // processes), context.device)
    variables = {**os.environ, **settings.environment(), "TOKENIZERS_PARALLELISM": "false"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    command, log = list(server.command(context, settings)), context.work / f"{server.name.split(',')[0]}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=_ROOT, env=variables, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{settings.port}"
        _wait(server, url, process, log, min(context.deadline, time.monotonic() + _READY_SECONDS))
        yield url
    finally:
        stop(process)


def _wait(server: PeerServer, url: str, process: subprocess.Popen[bytes], log: Path, end: float) -> None:
    problem = "it did not listen"
    while time.monotonic() < end and process.poll() is None:
        try:
            problem = asyncio.run(_problem(server, url))
        except TransportError as error:
            problem = str(error)
        if not problem:
            return
        time.sleep(0.2)
    lines = log.read_text(errors="replace").strip().splitlines() or [""]
    raise RuntimeError(f"it is not ready, {problem}: {lines[-1]}")


async def _problem(server: PeerServer, url: str) -> str:
    """Return the error in the response to one text, empty where there is none."""
    requests = PeerRequests(server.name, 1)
    async with Client(url, None, 1) as client:
        answer = await client.post(requests.path, requests.body(), {}, 30.0)
    if answer.status != 200:
        return f"it answers {answer.status}: {answer.content[:100]!r}"
    return requests.error_in(answer.content) or ""
