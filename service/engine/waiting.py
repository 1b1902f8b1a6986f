"""What a request waits for: the outputs of its parts, in one future."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from models.tasks.model import Part
from service.engine.caller import Timing
from service.engine.queue import Entry

__all__ = ["Outputs", "Waiting", "awaited"]

_MISSING = object()


class Outputs:
    """The outputs of the parts of a request, which are computed in any order and in several batches."""

    __slots__ = ("_batch", "_future", "_inference", "_queue", "left", "values")

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.values: list[Any] = [_MISSING] * count
        """The outputs in the order of the parts."""
        self.left = count
        """Parts without an output."""
        self._future: asyncio.Future[None] = loop.create_future()
        self._queue = self._inference = 0.0
        self._batch = 0
        if not count:
            self._future.set_result(None)

    @property
    def ended(self) -> bool:
        """Whether all outputs are there, or the request has failed or is given up."""
        return self._future.done()

    def missing(self, place: int) -> bool:
        """Return whether an output is still awaited."""
        return self.values[place] is _MISSING and not self._future.done()

    def set(self, place: int, output: object, timing: Timing) -> None:
        """Set the output of a part, if it is still awaited."""
        if not self.missing(place):
            return
        self.values[place] = output
        self._queue, self._inference = max(self._queue, timing.queue), max(self._inference, timing.inference)
        self._batch = max(self._batch, timing.batch)
        self.left -= 1
        if not self.left:
            self._future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End the request by an error, if it has not ended."""
        if not self._future.done():
            self._future.set_exception(error)

    def give_up(self) -> None:
        """End the request: nobody awaits it."""
        self._future.cancel()

    async def all(self) -> Sequence[Any]:
        """Return all outputs; raises the error that ends the request."""
        await self._future
        return self.values

    @property
    def timing(self) -> Timing:
        """The longest wait and the longest computation of a part, and the last batch."""
        return Timing(self._queue, self._inference, self._batch)


class Waiting:
    """A part of a request that waits, or is being computed."""

    __slots__ = ("_outputs", "_place", "part", "trace")

    def __init__(self, part: Part, outputs: Outputs, place: int, trace: Any = None) -> None:
        """`trace` is the context of its request, where there is a tracer."""
        self.part, self.trace = part, trace
        self._outputs, self._place = outputs, place

    @property
    def awaited(self) -> bool:
        """Whether its output is still awaited."""
        return self._outputs.missing(self._place)

    def succeed(self, output: object, timing: Timing) -> None:
        """Set its output, if that is still awaited."""
        self._outputs.set(self._place, output, timing)

    def fail(self, error: BaseException) -> None:
        """End its request by an error, if its output is still awaited."""
        if self.awaited:
            self._outputs.fail(error)


def awaited(entries: Iterable[Entry[Waiting]]) -> bool:
    """Return whether any of the outputs of entries is still awaited."""
    return any(entry.payload.awaited for entry in entries)
