"""Scheduling priority of the threads that compute (Linux; elsewhere nothing is changed)."""

import contextlib
import os
import sys
import threading

__all__ = ["BACKGROUND", "lower_thread_priority"]

_ADDED = 5
"""Niceness of threads that compute, beyond that of the main thread, whose event loop goes first."""
BACKGROUND = 19
"""Niceness to add for threads that compute what no client waits for: they take the time that all others leave."""
_MOST = 19
"""The greatest niceness (setpriority(2))."""


def lower_thread_priority(added: int = _ADDED) -> None:
    """Lower the priority of the calling thread, which is not the main one, and of threads that it starts later.

    Use it as the initializer of an executor whose threads do nothing else. It never raises a priority, which would need
    `CAP_SYS_NICE`, and it never fails: priority is a courtesy. Where a service manager gave the process a niceness, its
    threads have a greater one.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            niceness = min(os.getpriority(os.PRIO_PROCESS, os.getpid()) + added, _MOST)
            if os.getpriority(os.PRIO_PROCESS, thread) < niceness:
                os.setpriority(os.PRIO_PROCESS, thread, niceness)
