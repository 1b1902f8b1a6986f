"""A bundle whose graph loops for ever where a text has a certain word, and a process that is paused."""

import os
import signal
import time

from tests.support.hostile.attack import Attack, at_once
from tests.support.limited_server import Answer, LimitedServer

__all__ = ["LOOPS", "PAUSED"]

_UNKNOWN = 404
"""Status where no such bundle is served; `tests/fixtures/looping.py` makes it."""
_DEADLINE = 1.0
_PAUSE = 9.0
"""Seconds; longer than the timeouts of the server that is paused."""


def _classify(server: LimitedServer, text: str, seconds: float) -> Answer:
    return server.post("/v1/classify", {"text": text, "model": "intents:1"}, round(1000 * seconds))


def _loop(clients: int, rounds: int) -> Attack:
    def run(server: LimitedServer) -> list[Answer]:
        found: list[Answer] = []
        for _ in range(rounds):
            found += at_once(clients, lambda _: _classify(server, "buy a banana", _DEADLINE))
        return found

    return Attack(
        name=f"a graph that loops for ever, {clients} clients, {rounds} times",
        run=run,
        statuses={429, 504, _UNKNOWN},
        max_stall=0.2,
        max_seconds=rounds * (_DEADLINE + 0.5),
    )


def _pause(server: LimitedServer) -> list[Answer]:
    """Stop the process and let it go on."""
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(_PAUSE)
    os.kill(server.pid, signal.SIGCONT)
    return [server.post("/v1/next-word", {"context": "we had a very"}, 30_000) for _ in range(5)]


def _computes_again(server: LimitedServer) -> list[Answer]:
    """Loop until the deadline, and classify a harmless text."""
    _classify(server, "buy a banana", _DEADLINE)
    return [_classify(server, "hello", 30.0)]


LOOPS: tuple[Attack, ...] = (
    _loop(1, 3),
    _loop(16, 2),
    Attack(
        name="a harmless text after a graph that loops for ever",
        run=_computes_again,
        statuses={200, _UNKNOWN},
        max_stall=0.2,
        max_seconds=_DEADLINE + 3.0,
    ),
)
PAUSED = Attack(name=f"a pause of {_PAUSE:g} s", run=_pause, statuses={200}, max_stall=None)
"""The pause is longer than the hang timeout of the server under attack."""
