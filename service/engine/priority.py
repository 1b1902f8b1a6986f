"""Scheduling priority of the threads that compute (Linux; elsewhere nothing is changed)."""

import contextlib
import os
import sys
import threading

__all__ = ["lower_thread_priority"]

_NICENESS = 5
"""Niceness of threads that compute: the event loop, which answers requests, goes first."""


def lower_thread_priority() -> None:
    """Lower the priority of the calling thread, and of threads that it starts later.

    Use it as the initializer of an executor whose threads do nothing else. It never raises a priority, which would need
    `CAP_SYS_NICE` where the process was started with a greater niceness, and it never fails: priority is a courtesy.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            if os.getpriority(os.PRIO_PROCESS, thread) < _NICENESS:
                os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
