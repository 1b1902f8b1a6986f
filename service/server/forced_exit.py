"""The end of a process in which native code does not return: it never waits for such threads for long."""

import contextlib
import logging
import os
import sys
import threading
import time
from typing import NoReturn

from service.server.native_timer import exit_after

__all__ = ["EXIT_STUCK", "ForcedExit"]

logger = logging.getLogger("softserve")

EXIT_STUCK = 4
"""Exit status of a process that ended without waiting for a computation that does not return."""
_MARGIN = 2.5
"""Seconds beyond the time to shut down, in which an orderly end is still possible."""
_COMPUTING = ("softserve-model", "softserve-texts", "softserve-images")
"""Beginnings of the names of threads that compute requests. Others, which load models, change no status."""
_RETURN = 1.0
"""Seconds in which threads return once nothing is left to do."""
_LOG = 1.0
"""Seconds in which the last line of the log is written: its reader may hang."""
_LAST = 2.0
"""Seconds after which the operating system ends the process that has not ended by itself."""


class ForcedExit:
    """Ends the process at the latest some seconds after the time to shut down, whatever its threads do."""

    def __init__(self) -> None:
        self._armed = False

    def arm(self, seconds: float) -> None:
        """End the process after so many seconds and a margin, unless it has ended before; the first call counts.

        Where native code keeps the interpreter's lock, so that no thread of Python runs, a timer of the operating
        system ends the process some seconds later, with the status `native_timer.EXIT_STATUS_AFTER`.
        """
        if not self._armed:
            self._armed = True
            exit_after(seconds + _MARGIN + _LOG + _LAST)
            threading.Thread(target=self._wait, args=(seconds + _MARGIN,), name="softserve-exit", daemon=True).start()

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)
        _end(EXIT_STUCK)

    def leave(self, status: int) -> int:
        """End the process without threads that do not return; return the status where there are none."""
        deadline = time.monotonic() + _RETURN
        for thread in _others():
            thread.join(max(0.0, deadline - time.monotonic()))
        if others := _others():
            _end(EXIT_STUCK if any(thread.name.startswith(_COMPUTING) for thread in others) else status)
        return status


def _others() -> list[threading.Thread]:
    """Return the threads that the interpreter would wait for at its end."""
    kept = threading.current_thread(), threading.main_thread()
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in kept]


def _end(status: int) -> NoReturn:
    names = ", ".join(sorted(thread.name for thread in _others())) or "none"
    level = logging.ERROR if status == EXIT_STUCK else logging.WARNING

    def write() -> None:
        logger.log(level, "the process ends with status %d, without waiting for threads: %s", status, names)
        logging.shutdown()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()

    writing = threading.Thread(target=write, name="softserve-exit", daemon=True)
    writing.start()
    writing.join(_LOG)
    os._exit(status)
