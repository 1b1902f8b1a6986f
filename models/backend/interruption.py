"""Interruption of a computation from another thread: between two operators of a graph, and between two graphs."""

import contextlib
import threading
from collections.abc import Callable, Iterator

__all__ = ["Interrupted", "Interruption", "interruptible"]

_OF_THREAD = threading.local()


class Interrupted(Exception):
    """A computation that another thread has interrupted."""


class Interruption:
    """The means to interrupt the runs of graphs of the thread that has entered it, now and later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], object] | None = None
        self.requested = False
        """Whether `interrupt` was called."""

    def __enter__(self) -> None:
        _OF_THREAD.current = self

    def __exit__(self, *_: object) -> None:
        del _OF_THREAD.current

    def interrupt(self) -> None:
        """End the run in progress as soon as its backend can, and begin no other; callable from any thread."""
        with self._lock:
            self.requested = True
            if self._stop is not None:
                self._stop()

    @contextlib.contextmanager
    def running(self, stop: Callable[[], object]) -> Iterator[None]:
        """Have `stop` called where the computation is interrupted within this context; raises `Interrupted`."""
        with self._lock:
            if self.requested:
                raise Interrupted
            self._stop = stop
        try:
            yield
        except Exception as error:
            if self.requested:
                raise Interrupted from error
            raise
        finally:
            with self._lock:
                self._stop = None


def interruptible(stop: Callable[[], object] = bool) -> contextlib.AbstractContextManager[None]:
    """Return the context of a run of a graph, within which `stop` ends the run, called from another thread.

    The context raises `Interrupted` where the thread's computation is interrupted, in place of the error of the run.
    """
    current: Interruption | None = getattr(_OF_THREAD, "current", None)
    return contextlib.nullcontext() if current is None else current.running(stop)
