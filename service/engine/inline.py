"""Short computations on the thread of the event loop, where no other request waits for it.

To pass a batch to another thread and its result back wakes two threads, which takes as long as a small model.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from models.backend.interruption import Interruption

__all__ = ["LONGEST", "Inline"]

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

LONGEST = 0.01
"""Seconds that a batch may be expected to take on the event loop: as long may a health check wait."""
_PERIOD = 0.1
"""Seconds between two looks at the computation in progress, which is interrupted at the second one."""
_IDLE = 10
"""Looks at nothing after which the thread sleeps until it is needed again."""


class Inline:
    """Calls functions on the calling thread, and interrupts them from another one where they take too long.

    A computation that cannot be interrupted hangs the event loop, which `service.server.watchdog` ends.
    """

    def __init__(self) -> None:
        self.alone: Callable[[], bool] = bool
        """Whether no other request waits for the event loop; a server that knows its requests sets it."""
        self._running: Interruption | None = None
        self._awake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Return the result of a function; raises its errors, and `Interrupted` where it takes 0.1 to 0.2 seconds."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="softserve-inline", daemon=True)
            self._thread.start()
        interruption = self._running = Interruption()
        if not self._awake.is_set():
            self._awake.set()
        try:
            with interruption:
                return function(*arguments)
        finally:
            self._running = None

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._awake.set()

    def _watch(self) -> None:
        seen, idle = None, 0
        while not self._closed:
            self._awake.wait()
            time.sleep(_PERIOD)
            running = self._running
            if running is not None and running is seen:
                running.interrupt()
            idle = 0 if running is not None else idle + 1
            seen = running
            if idle == _IDLE:
                idle = 0
                self._awake.clear()
                if self._running is not None and not self._closed:  # it began meanwhile
                    self._awake.set()
