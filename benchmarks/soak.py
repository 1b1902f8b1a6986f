"""Many requests while clients hang up and models are reloaded: is an answer lost or mixed up, does anything leak?

    python -m benchmarks.soak --requests 100000

Every answer is compared with what the library says of its text. A tenth of the clients' requests is given up after a
random time. Every second a model is loaded again under traffic. Printed are what came of the requests, and what the
server's process holds before and after them.
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

from benchmarks.client import Connection
from benchmarks.server import free_port, wait_until_ready
from models import Classifier, LanguageModel, ModelStore
from service import server as serving
from service.settings import BUNDLED, Settings

_WORDS = ("we", "had", "a", "very", "good", "time", "please", "set", "an", "alarm", "for", "seven", "what", "is", "the")
_TOLERANCE = 1e-3
"""Of a probability: sums run in another order in batches of another size."""


@dataclass(frozen=True)
class Question:
    """A request, and whether an answer is right."""

    path: str
    body: dict[str, object]
    right: Callable[[Any], bool]


@dataclass
class Outcome:
    """What came of all requests."""

    seen: Counter[str] = field(default_factory=Counter)
    reloads: int = 0
    left: int = 0
    """Requests still to be sent."""


def main(
    requests: int = 100_000,
    clients: int = 64,
    hang_up: float = 0.1,
    reload_seconds: float = 1.0,
    model_dir: Path = BUNDLED,
) -> None:
    """Prints what came of it; exit status 1 where an answer was wrong or missing.

    Args:
        requests: Requests in all.
        clients: Connections at a time.
        hang_up: Share of requests that are given up.
        reload_seconds: Between two reloads.
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
            models=("next-word", "intents"),
            admin_keys=keys,
            max_wait_ms=60_000,
            log_level="error",
        )
        server = multiprocessing.get_context("spawn").Process(target=_serve, args=(settings, theirs))
        server.start()
        try:
            wait_until_ready(port).close()
            asyncio.run(_load(port, key, questions, requests // 50, clients, hang_up, reload_seconds))  # to warm up
            before = _held(ours)
            started = time.perf_counter()
            outcome = asyncio.run(_load(port, key, questions, requests, clients, hang_up, reload_seconds))
            seconds = time.perf_counter() - started
            after = _held(ours)
        finally:
            server.terminate()
            server.join()
    print(f"{requests} requests, {clients} clients, {seconds:.0f} s, {outcome.reloads} reloads: {dict(outcome.seen)}")
    print(f"server ended with status {server.exitcode}")
    for name, count in before.items():
        print(f"{name:<8} {count:>8} -> {after[name]:>8}")
    answered = outcome.seen["right"] + outcome.seen["given up"]
    if answered != requests or server.exitcode:
        raise SystemExit(1)


def _questions(model_dir: Path, count: int = 100) -> list[Question]:
    """Requests of both models, each with what the library says."""
    store, generator = ModelStore(model_dir), random.Random(0)
    texts = [" ".join(generator.choices(_WORDS, k=generator.randint(1, 20))) for _ in range(count)]
    lm, intents = store.load("next-word"), store.load("intents")
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
    """Whether an answer is of this text, and has its probabilities."""

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
    port: int, key: str, questions: Sequence[Question], requests: int, clients: int, hang_up: float, pause: float
) -> Outcome:
    outcome = Outcome(left=requests)
    reloading = asyncio.create_task(_reload(port, key, pause, outcome))
    await asyncio.gather(*(_client(port, random.Random(n), questions, hang_up, outcome) for n in range(clients)))
    reloading.cancel()
    await asyncio.wait([reloading])
    return outcome


async def _client(
    port: int, generator: random.Random, questions: Sequence[Question], hang_up: float, outcome: Outcome
) -> None:
    connection = Connection(port)
    while outcome.left > 0:
        outcome.left -= 1
        question = generator.choice(questions)
        if generator.random() < hang_up:
            await connection.send(question.path, question.body)
            await asyncio.sleep(generator.random() / 20)
            connection.drop()
            outcome.seen["given up"] += 1
            continue
        try:
            answer = await connection.post(question.path, question.body)
        except (OSError, EOFError) as error:
            connection.drop()
            outcome.seen[type(error).__name__] += 1
            continue
        if answer.status != 200:
            outcome.seen[str(answer.status)] += 1
        else:
            outcome.seen["right" if question.right(answer.body) else "wrong"] += 1
    connection.drop()


async def _reload(port: int, key: str, pause: float, outcome: Outcome) -> None:
    connection = Connection(port)
    while True:
        for model in ("next-word", "intents"):
            await asyncio.sleep(pause)
            answer = await connection.post(f"/v1/admin/models/{model}/load", {}, f"X-API-Key: {key}\r\n")
            assert answer.status == 200, answer
            outcome.reloads += 1


class _Watched(serving.Server):
    """A server that tells its event loop."""

    loop: asyncio.AbstractEventLoop

    async def serve(self, sockets: Any = None) -> None:
        _Watched.loop = asyncio.get_running_loop()
        await super().serve(sockets)


def _serve(settings: Settings, pipe: Pipe) -> None:
    """A service that says over a pipe what its process holds."""
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
    """What the server holds once it has been left in peace for a while."""
    time.sleep(3)
    pipe.send(None)
    held: dict[str, int] = pipe.recv()
    return held


if __name__ == "__main__":
    tyro.cli(main)
