"""Coroutines that run in the task that starts them until they first wait, which most of them never do.

A task and a timer take longer than it takes to receive a small body that has arrived.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import CoroutineType
from typing import Any, Generic, TypeVar

__all__ = ["Started", "in_time"]

ResultT = TypeVar("ResultT")


class Started(Generic[ResultT]):
    """A coroutine that has begun, and goes on where it is awaited; which is done once, in the same or another task."""

    def __init__(self, awaitable: Awaitable[ResultT]) -> None:
        """Errors of its beginning are raised where it is awaited."""
        self._coroutine = awaitable if isinstance(awaitable, CoroutineType) else _coroutine(awaitable)
        self._waits_for: Any = None
        self._when_ready: Callable[[asyncio.Future[Any]], object] | None = None
        self._result: Any = None
        self.ended = False
        """Whether it has returned or failed, so that it is awaited without waiting."""
        self._error: Exception | None = None
        try:
            self._go_on(self._coroutine.send, None)
        except Exception as error:
            self.ended, self._error = True, error

    def _go_on(self, resume: Callable[[Any], Any], value: object) -> None:
        try:
            self._waits_for = resume(value)
        except StopIteration as returned:
            self.ended, self._result = True, returned.value

    def when_ready(self, call: Callable[[], object]) -> None:
        """Call a function, once, when it can go on, which is where it is awaited then."""
        if not isinstance(self._waits_for, asyncio.Future):
            call()
            return
        self._when_ready = lambda _: call()
        self._waits_for.add_done_callback(self._when_ready)

    def __await__(self) -> Generator[Any, Any, ResultT]:
        while not self.ended:
            try:
                sent = yield self._waits_for
            except BaseException as error:
                self._go_on(self._coroutine.throw, error)
            else:
                self._go_on(self._coroutine.send, sent)
        if self._error is not None:
            raise self._error
        result: ResultT = self._result
        return result

    def close(self) -> None:
        """End the coroutine where it waits."""
        if self._when_ready is not None:  # which may refer to what the future belongs to
            self._waits_for.remove_done_callback(self._when_ready)
        self._coroutine.close()


async def _coroutine(awaitable: Awaitable[ResultT]) -> ResultT:
    return await awaitable


async def in_time(awaitable: Awaitable[ResultT], seconds: float) -> ResultT:
    """Return the result of a coroutine; raises its errors, and `TimeoutError` where it waits longer than that."""
    started = Started(awaitable)
    if started.ended:
        return await started
    async with asyncio.timeout(seconds):
        return await started
