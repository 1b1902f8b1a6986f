"""An executor whose threads do not keep the process from ending."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

__all__ = ["DaemonExecutor"]

P = ParamSpec("P")
Result = TypeVar("Result")


class DaemonExecutor(Executor):
    """Calls functions on daemon threads.

    The interpreter waits at its end for the threads of a `ThreadPoolExecutor`, without a limit: for code that may never
    return, such as that of a graph, use this.
    """

    def __init__(self, threads: int, name: str, initializer: Callable[[], object] = lambda: None) -> None:
        """Start so many threads, each of which calls `initializer` first."""
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads = threads
        self._closed = False
        self.active: set[Future[Any]] = set()
        """Calls that have begun and not returned."""
        for number in range(threads):
            threading.Thread(target=self._work, args=(initializer,), name=f"{name}_{number}", daemon=True).start()

    def submit(self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> Future[Result]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Result] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Start no more calls; calls that have begun are not waited for, whatever `wait` says."""
        del wait
        self._closed = True
        while cancel_futures and not self._calls.empty():
            if (call := self._calls.get()) is not None:
                call[0].cancel()
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self, initializer: Callable[[], object]) -> None:
        initializer()
        while (call := self._calls.get()) is not None:
            future, function = call
            if not future.set_running_or_notify_cancel():
                continue
            self.active.add(future)
            result: Any = None
            try:
                result = function()
            except BaseException as error:  # a panic of a library that is written in Rust is no Exception
                self.active.discard(future)
                future.set_exception(error)
            else:
                self.active.discard(future)
                future.set_result(result)
            del call, future, function, result  # which the thread would keep until its next call
