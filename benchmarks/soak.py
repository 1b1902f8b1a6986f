"""Send many requests while clients disconnect and models are reloaded: are answers lost or mixed up, are there leaks?

    python -m benchmarks.soak --requests 100000

Every response is compared with the library's result for the text. For a tenth of the requests the client waits 0 to
50 ms at random and then closes the connection. Every second a model is loaded again under load. Printed are the counts
of results, and the tasks, threads, open files and memory of the server's process before and after the requests.
"""

import asyncio
import math
import multiprocessing
import os
import random
import secrets
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import tyro

from benchmarks.load.client import TIMED_OUT, Client, TransportError
from benchmarks.server import post_json, wait_until_ready
from models import Classifier, LanguageModel, ModelStore
from service.server import process as serving
from service.settings import BUNDLED, Settings
from tests.support.ports import free_port

_WORDS = ("we", "had", "a", "very", "good", "time", "please", "set", "an", "alarm", "for", "seven", "what", "is", "the")
_TOLERANCE = 1e-3
"""Largest error of a probability: the order of summation depends on the size of the batch."""
_TIMEOUT = 60.0
"""Seconds that a client waits for a response."""
_SOON = 0.05
"""Longest time, in seconds, until a client disconnects that does not wait for its response."""


@dataclass(frozen=True)
class Question:
    """A request, and a check of its response."""

    path: str
    body: dict[str, object]
    right: Callable[[Any], bool]


@dataclass
class Outcome:
    """The results of all requests."""

    seen: Counter[str] = field(default_factory=Counter)
    reloads: int = 0
    left: int = 0
    """Number of requests still to send."""


def main(
    requests: int = 100_000,
    clients: int = 64,
    disconnect: float = 0.1,
    reload_seconds: float = 1.0,
    model_dir: Path = BUNDLED,
) -> None:
    """Print the counts of results; exit status 1 where an answer was wrong or missing.

    Args:
        requests: Number of requests.
        clients: Concurrent connections.
        disconnect: Fraction of requests whose client disconnects within 50 ms.
        reload_seconds: Seconds between two reloads.
        model_dir: Directory with the models next-word and intents.
    """
    questions = _questions(model_dir)
    port, key = free_port(), secrets.token_hex(16)
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as directory:
        keys = Path(directory) / "keys"
        keys.write_text(f"{key}\n", encoding="ascii")
        settings = Settings(
            port=port,
            model_dirs=(model_dir,),
            models=("next-word:4", "intents"),
            admin_keys=keys,
            max_wait_ms=60_000,
            log_level="error",
        )
        server = multiprocessing.get_context("spawn").Process(target=_serve, args=(settings, theirs))
        server.start()
        try:
            wait_until_ready(port)
            asyncio.run(_load(port, key, questions, requests // 50, clients, disconnect, reload_seconds))  # to warm up
            before = _held(ours)
            started = time.perf_counter()
            outcome = asyncio.run(_load(port, key, questions, requests, clients, disconnect, reload_seconds))
            seconds = time.perf_counter() - started
            after = _held(ours)
        finally:
            server.terminate()
            server.join()
    print(f"{requests} requests, {clients} clients, {seconds:.0f} s, {outcome.reloads} reloads: {dict(outcome.seen)}")
    print(f"server ended with status {server.exitcode}")
    for name, count in before.items():
        print(f"{name:<8} {count:>8} -> {after[name]:>8}")
    expected = outcome.seen["right"] + outcome.seen["disconnected"]
    if expected != requests or server.exitcode:
        raise SystemExit(1)


def _questions(model_dir: Path, count: int = 100) -> list[Question]:
    """Return requests of both models, each with a check against the library's result."""
    store, generator = ModelStore(model_dir), random.Random(0)
    texts = [" ".join(generator.choices(_WORDS, k=generator.randint(1, 20))) for _ in range(count)]
    lm, intents = store.load("next-word:4"), store.load("intents")
    assert isinstance(lm, LanguageModel)
    assert isinstance(intents, Classifier)
    found: list[Question] = []
    for text in texts:
        words = {word.word: word.probability for word in lm.next_words([text], 50)[0].words}
        labels = {label.label: label.probability for label in intents.classify([text], 50)[0].labels}
        total = lm.score([text])[0].log_probability
        found += [
            Question("/v1/next-word", {"context": text}, _says(text, "context", words, "words", "word")),
            Question("/v1/classify", {"text": text}, _says(text, "text", labels, "labels", "label")),
            Question("/v1/score", {"text": text}, _scores(text, total)),
        ]
    return found


def _says(text: str, echo: str, known: dict[str, float], items: str, name: str) -> Callable[[Any], bool]:
    """Return a check that a response belongs to this text and has its probabilities."""

    def right(answer: Any) -> bool:
        (result,) = answer["results"]
        close = (abs(known.get(each[name], math.inf) - each["probability"]) < _TOLERANCE for each in result[items])
        return result[echo] == text and bool(result[items]) and all(close)

    return right


def _scores(text: str, total: float) -> Callable[[Any], bool]:
    def right(answer: Any) -> bool:
        (result,) = answer["results"]
        return bool(result["text"] == text and abs(result["log_probability"] - total) < _TOLERANCE * abs(total))

    return right


async def _load(
    port: int, key: str, questions: Sequence[Question], requests: int, clients: int, disconnect: float, pause: float
) -> Outcome:
    outcome = Outcome(left=requests)
    async with Client(f"http://127.0.0.1:{port}", None, clients + 1) as http:
        reloading = asyncio.create_task(_reload(http, key, pause, outcome))
        senders = (_send(http, random.Random(n), questions, disconnect, outcome) for n in range(clients))
        await asyncio.gather(*senders)
        reloading.cancel()
        await asyncio.wait([reloading])
    return outcome


async def _send(
    http: Client, generator: random.Random, questions: Sequence[Question], disconnect: float, outcome: Outcome
) -> None:
    while outcome.left > 0:
        outcome.left -= 1
        question = generator.choice(questions)
        disconnects = generator.random() < disconnect
        seconds = generator.random() * _SOON if disconnects else _TIMEOUT
        try:
            status, answer = await post_json(http, question.path, question.body, seconds=seconds)
        except TransportError as error:  # at the end of its time the client closes the connection
            outcome.seen["disconnected" if disconnects and str(error) == TIMED_OUT else str(error)] += 1
            continue
        if status != 200:
            outcome.seen[str(status)] += 1
        else:
            outcome.seen["right" if question.right(answer) else "wrong"] += 1


async def _reload(http: Client, key: str, pause: float, outcome: Outcome) -> None:
    while True:
        for model in ("next-word", "intents"):
            await asyncio.sleep(pause)
            status, answer = await post_json(http, f"/v1/admin/models/{model}/load", {}, {"X-API-Key": key})
            assert status == 200, answer
            outcome.reloads += 1


class _Watched(serving.Server):
    """A server that exposes its event loop."""

    loop: asyncio.AbstractEventLoop

    async def serve(self, sockets: Any = None) -> None:
        _Watched.loop = asyncio.get_running_loop()
        await super().serve(sockets)


def _serve(settings: Settings, pipe: Pipe) -> None:
    """Run a service that reports the resources of its process over a pipe."""
    serving.Server = _Watched  # type: ignore[misc]
    threading.Thread(target=_tell, args=(pipe,), daemon=True).start()
    raise SystemExit(serving.serve(settings))


def _tell(pipe: Pipe) -> None:
    while True:
        pipe.recv()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        pipe.send(
            {
                "tasks": len(asyncio.all_tasks(_Watched.loop)),
                "threads": len(os.listdir("/proc/self/task")),
                "files": len(os.listdir("/proc/self/fd")),
                "MB": round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6),
            }
        )


def _held(pipe: Pipe) -> dict[str, int]:
    """Return the resources of the server after some idle seconds."""
    time.sleep(3)
    pipe.send(None)
    held: dict[str, int] = pipe.recv()
    return held


if __name__ == "__main__":
    tyro.cli(main)
