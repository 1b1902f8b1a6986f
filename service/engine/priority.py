"""The scheduling priority of threads that compute."""

import contextlib
import os
import sys
import threading

__all__ = ["lower_thread_priority"]

_NICENESS = 5


def lower_thread_priority() -> None:
    """Let this thread, and those it starts, yield the processor to the event loop (Linux: their niceness).

    A priority that is lower already stays, and so does any where the system does not allow the change.
    """
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, thread) < _NICENESS:
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
