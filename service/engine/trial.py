"""Trying a bundle in a process of its own, within limits on time and memory, before the service loads it.

A graph may compute for ever or ask for any amount of memory, and a library may crash: a process can be ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from models.errors import BundleError, UnsupportedDeviceError
from models.signing import TrustedKey
from models.store import bundle_errors
from models.tasks.registry import TASKS
from service.engine.memory import private_memory
from service.engine.replicas import ReplicaOptions
from service.engine.trial_process import Trial, TrialOutcome

__all__ = ["CrashedError", "LoadTimeoutError", "MemoryLimitError", "reason_of", "try_bundle"]

_INTERVAL = 0.01
"""Seconds between two checks of the process."""
_ANSWER = 1 << 16
"""Largest answer, in bytes."""


class LoadTimeoutError(BundleError):
    """A bundle that took too long to load."""


class MemoryLimitError(BundleError):
    """A bundle that took too much memory while it was loaded."""

    @classmethod
    def over(cls, bundle: Path, max_bytes: int) -> Self:
        """Return the error of a bundle that takes more than `max_bytes`."""
        problem = f"to load it takes more than {max_bytes >> 20:,} MB of memory (--load-memory-mb)"
        return cls(str(bundle), [problem])


class CrashedError(BundleError):
    """A bundle that ended the process that loaded it."""


def reason_of(error: BaseException) -> str:
    """Return why a bundle does not load, in one word of a few."""
    kinds = {LoadTimeoutError: "timeout", MemoryLimitError: "memory", CrashedError: "crash"}
    return next((reason for kind, reason in kinds.items() if isinstance(error, kind)), "invalid")


def try_bundle(
    bundle: Path,
    directory: Path | None,
    options: ReplicaOptions,
    *,
    seconds: float,
    max_bytes: int,
    stopped: threading.Event,
    trusted_key: TrustedKey | None = None,
) -> Path:
    """Load and warm up a bundle in a process; return the directory of the files that it has checked and loaded.

    That is a copy below `directory`, unless there is no room or weights are to be mapped. Raises `BundleError` and
    `UnsupportedDeviceError` as loading does, and those of this module. `stopped` ends the process early.
    """
    modules = {value.__module__ for value in TASKS.values()} - {"__main__"}
    trial = Trial(
        bundle=bundle.absolute(),
        directory=directory,
        modules=tuple(sorted(modules)),
        options=options,
        trusted_key=trusted_key,
    )
    path = os.pathsep.join(filter(None, sys.path))  # where this process finds modules, and nowhere else
    with bundle_errors(bundle, "no process can be started to try it"):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "service.engine.trial_process"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(trial.model_dump_json().encode() + b"\n")
            _watch(process, bundle, seconds, max_bytes, stopped.is_set)
            answer = process.stdout.read(_ANSWER) or b""
        finally:
            process.kill()
            process.wait()
    if process.returncode == -signal.SIGKILL:
        problem = "the process that loaded it was killed, most likely by the kernel for lack of memory"
        raise MemoryLimitError(str(bundle), [problem])
    if process.returncode or not answer:
        raise CrashedError(str(bundle), [f"the process that loaded it {_ending(process.returncode)}"])
    return _path_of(bundle, TrialOutcome.model_validate_json(answer))


def _watch(
    process: "subprocess.Popen[bytes]", bundle: Path, seconds: float, max_bytes: int, stopped: Callable[[], bool]
) -> None:
    """Return when a process has ended; raise where it takes too much time or memory."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_INTERVAL)
            return
        if stopped():
            raise BundleError(str(bundle), ["the service is shutting down"])
        if time.monotonic() > deadline:
            raise LoadTimeoutError(str(bundle), [f"it did not load within {seconds:g} s (--load-timeout)"])
        if private_memory(process.pid) > max_bytes:
            raise MemoryLimitError.over(bundle, max_bytes)


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


def _path_of(bundle: Path, outcome: TrialOutcome) -> Path:
    if outcome.error == "device":
        raise UnsupportedDeviceError("; ".join(outcome.problems))
    if outcome.path is None:
        raise BundleError(str(bundle), outcome.problems)
    return outcome.path
