"""SIGINT (Ctrl-C) and SIGTERM: commands end without a traceback, and training saves a checkpoint first."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

__all__ = ["Interrupted", "SignalHold", "raise_on_signals", "received"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_REPEATED_AFTER = 1.0
"""Seconds after which another signal is a second request: torchrun and a terminal both send the first one."""


_received: list[int] = []


class Interrupted(KeyboardInterrupt):
    """The process got SIGINT or SIGTERM; the exit status is 128 plus `number`."""

    def __init__(self, number: int, message: str = "interrupted") -> None:
        super().__init__(message)
        self.number = number


def received() -> int | None:
    """Return the signal that this process got, if any: libraries may have made another error of an `Interrupted`."""
    return _received[-1] if _received else None


def raise_on_signals() -> None:
    """Raise `Interrupted` in the main thread on SIGINT and SIGTERM, unless they are ignored, as in background jobs."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    _received.append(number)
    raise Interrupted(number)


class SignalHold:
    """Holds signals back within its block, for code that must reach a consistent state first.

    The first signal is kept in `number`. Another one, a second later or more, raises `Interrupted` at once. Outside the
    main thread nothing is held back, because signals do not arrive there.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._since = 0.0
        self._immediate = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Let signals raise `Interrupted` at once within the block, because the state is consistent all the time."""
        self._immediate = True
        try:
            yield
        finally:
            self._immediate = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._immediate:
            _raise(number, frame)
        _received.append(number)
        now = time.monotonic()
        if self.number is None:
            self.number, self._since = number, now
            # Not print, which may be what the signal interrupted.
            os.write(2, b"\ninterrupted: ends when this step is saved; interrupt again to end without saving\n")
        elif now - self._since > _REPEATED_AFTER:
            raise Interrupted(number, "interrupted without saving; the same command resumes at the last checkpoint")
