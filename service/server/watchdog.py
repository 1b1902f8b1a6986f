"""End a process whose event loop hangs, so that a supervisor or container engine starts it again."""

import asyncio
import contextlib
import faulthandler
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from service.engine.running_time import RunningTime
from service.server.native_timer import NativeTimer

__all__ = ["HangDetector", "exit_on_hang"]


class HangDetector:
    """Tells a hang of what sends heartbeats from a pause of the whole process, in which nothing is sent either."""

    def __init__(self, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`timeout` is the longest time without a heartbeat, in seconds for which the process runs."""
        self._timeout = timeout
        self._time = RunningTime(min(1.0, timeout / 8), clock)
        self._heard, self._last = False, 0.0

    @property
    def period(self) -> float:
        """Seconds between two calls of `hangs`."""
        return self._time.period

    def beat(self) -> None:
        """Take note of a heartbeat; callable from any thread."""
        self._heard = True

    def hangs(self) -> bool:
        """Return whether there was no heartbeat for the timeout. Called once in each period."""
        now = self._time.advance()
        if self._heard:
            self._heard, self._last = False, now
        return now - self._last >= self._timeout


async def exit_on_hang(timeout: float) -> None:
    """Exit with status 1 where the event loop does not run for `timeout` seconds; runs until it is cancelled.

    The stack of every thread is written to standard error first. Time for which the process is paused does not count.
    Where native code keeps the interpreter's lock, so that the thread that looks after the event loop does not run, a
    timer of the operating system ends the process some seconds later, with another status.
    """
    detector, over = HangDetector(timeout), threading.Event()
    thread = threading.Thread(target=_watch, args=(detector, timeout, over), name="softserve-watchdog", daemon=True)
    thread.start()
    try:
        while True:
            detector.beat()
            await asyncio.sleep(detector.period)
    finally:
        over.set()


def _watch(detector: HangDetector, timeout: float, over: threading.Event) -> None:
    native = NativeTimer(timeout)
    native.restart()
    while not over.wait(detector.period):
        native.restart()
        if detector.hangs():
            _report(f"Timeout ({timedelta(seconds=timeout)})! The event loop does not run.\n")
            os._exit(1)
    native.stop()


def _report(line: str) -> None:
    """Write a line and the stacks of all threads to standard error, as far as its reader takes them at once.

    Neither waits for the reader, nor for the locks of Python's stream, which a thread may hold that waits for it.
    """
    error_output = 2
    with contextlib.suppress(OSError):
        os.set_blocking(error_output, False)
        os.write(error_output, line.encode())
        faulthandler.dump_traceback(error_output, all_threads=True)
    with contextlib.suppress(OSError):
        os.set_blocking(error_output, True)  # a terminal is shared with the shell
