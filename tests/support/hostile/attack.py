"""Attacks, their measurement on a server, and the bounds that the server must keep."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.support.limited_server import Answer, LimitedServer
from tests.support.probe import LoopProbe, Stalls

__all__ = ["OVERLOADED", "REFUSED", "Attack", "Outcome", "at_once", "delays", "measure", "violations"]

REFUSED = frozenset({400, 404, 405, 413, 414, 415, 422, 431})
"""Statuses of invalid requests."""
OVERLOADED = frozenset({429, 503, 504})
"""Statuses of requests that are refused for lack of capacity or time."""

_SMALL_ANSWER = 20_000
_MEMORY_SLACK = 20.0
"""Megabytes that may not be released some seconds after an attack."""
_MEMORY_SECONDS = 5.0
_RECOVERY = 0.2
"""Seconds that a normal request may take within a second of an attack."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Requests, and the bounds that the server must keep during and after them."""

    name: str
    run: Callable[[LimitedServer], Sequence[Answer]]
    statuses: Collection[int]
    """An answer of another status is a violation."""
    max_answer: int | None = _SMALL_ANSWER
    """Largest refusal, in bytes; responses of status 200 may be larger if requested."""
    max_result: int | None = None
    """Largest response of status 200, in bytes."""
    max_stall: float | None = 0.1
    """Seconds that the event loop may be blocked."""
    max_seconds: float | None = None
    """Longest duration of the attack, in seconds."""
    memory_back: bool = True
    """Whether memory must be released within some seconds."""


@dataclass(frozen=True)
class Outcome:
    """The measurements of one attack; megabytes and seconds."""

    answers: Sequence[Answer]
    seconds: float
    stalls: Stalls
    before: float
    peak: float
    after: float
    recovery: float
    """Latency of a normal request afterwards."""
    ended: bool
    """Whether the server's process ended."""

    @property
    def statuses(self) -> str:
        """The statuses with their counts, such as `200 x 3, 429 x 5`."""
        counts = sorted(Counter(answer.status for answer in self.answers).items())
        return ", ".join(f"{_NAMES.get(status, status)} x {count}" for status, count in counts)


_NAMES = {0: "closed", -1: "silent"}


def at_once(count: int, request: Callable[[int], Answer]) -> list[Answer]:
    """Return the responses to requests of so many concurrent clients; `request` gets the number of its client."""
    with ThreadPoolExecutor(count) as clients:
        return list(clients.map(request, range(count)))


def measure(server: LimitedServer, probe: LoopProbe, attack: Attack) -> Outcome:
    """Run an attack while the event loop is probed; then send a normal request and wait until memory is released."""
    before = server.resident()
    server.reset_peak()
    probe.start()
    started = time.perf_counter()
    answers = attack.run(server)
    seconds = time.perf_counter() - started
    stalls = probe.stop()
    recovery = server.recovery()
    peak = server.peak()
    after = _settled(server, before) if attack.memory_back else server.resident()
    return Outcome(answers, seconds, stalls, before, peak, after, recovery, not server.alive)


def _settled(server: LimitedServer, before: float) -> float:
    end = time.perf_counter() + _MEMORY_SECONDS
    while (held := server.resident()) > before + _MEMORY_SLACK and time.perf_counter() < end and server.alive:
        time.sleep(0.05)
    return held


def violations(attack: Attack, outcome: Outcome) -> list[str]:
    """Return the violated bounds that do not depend on the machine's load: statuses, sizes, memory, the process."""
    if outcome.ended:
        return ["the server ended"]
    refusals = [answer for answer in outcome.answers if answer.status != 200]
    found = [f"status {answer.status}" for answer in outcome.answers if answer.status not in attack.statuses][:3]
    if attack.max_answer is not None:
        found += [f"a refusal of {each.size} bytes" for each in refusals if each.size > attack.max_answer][:3]
    if attack.max_result is not None:
        found += [f"an answer of {each.size} bytes" for each in outcome.answers if each.size > attack.max_result][:3]
    if attack.memory_back and outcome.after > outcome.before + _MEMORY_SLACK:
        found.append(f"{outcome.before:.0f} MB before, {outcome.after:.0f} MB after")
    return found


def delays(attack: Attack, outcome: Outcome) -> list[str]:
    """Return the violated bounds of time, which other load on the machine may cause too."""
    if outcome.ended:
        return []
    found = []
    if attack.max_stall is not None and outcome.stalls.longest > attack.max_stall:
        found.append(f"event loop blocked for {outcome.stalls.longest:.3f} s")
    if attack.max_seconds is not None and outcome.seconds > attack.max_seconds:
        found.append(f"took {outcome.seconds:.2f} s")
    if outcome.recovery > _RECOVERY:
        found.append(f"a normal request took {outcome.recovery:.2f} s afterwards")
    return found
