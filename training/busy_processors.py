"""How threads wait for each other where other programs use the processors.

Threads of OpenMP, which torch computes with, spin while they wait, which is fastest on processors of one's own. Where a
thread has lost its processor to another program, all others spin until it has one again: steps of a small network take
four to eight times as long on two processors of which another program uses one. Threads that sleep do not.
"""

import os
import time
from pathlib import Path

from models.backend.cpus import usable_cpus

__all__ = ["idle_processors", "let_threads_sleep"]

_STATISTICS = Path("/proc/stat")
_SECONDS = 0.2
"""Time in which the use of processors is measured."""
_LEAST_USED = 0.5
"""Processors that other programs must use, of those that a training would take."""
_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def let_threads_sleep() -> str | None:
    """Let threads that wait sleep where other programs use the processors, and return a line that says so.

    To be called before torch is imported. Nothing is changed where the environment says how threads wait, or where the
    system does not say how its processors are used.
    """
    if any(name in os.environ for name in _SETTINGS) or not _STATISTICS.is_file():
        return None
    before = _STATISTICS.read_text(encoding="ascii")
    time.sleep(_SECONDS)
    idle, wanted = idle_processors(before, _STATISTICS.read_text(encoding="ascii")), usable_cpus()
    if wanted == 1 or idle > wanted - _LEAST_USED:
        return None
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return (
        f"other programs use the processors, of which {idle:.1f} are idle: waiting threads sleep, "
        "as OMP_WAIT_POLICY=PASSIVE says"
    )


def idle_processors(before: str, after: str) -> float:
    """Return how many processors were idle between two contents of `/proc/stat`."""
    first, second = _times(before), _times(after)
    changes = [new - old for old, new in zip(first, second, strict=True)]
    count = sum(line.startswith("cpu") for line in after.splitlines()) - 1
    return count * (changes[3] + changes[4]) / max(1, sum(changes))


def _times(content: str) -> list[int]:
    """Return the time of all processors together: user, nice, system, idle, input and output, others."""
    return [int(each) for each in content.split("\n", 1)[0].split()[1:9]]
