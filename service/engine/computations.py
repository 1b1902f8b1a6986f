"""The computations of a model on threads: those that take too long are interrupted, and the model is given up for as
long as one of them does not return.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Protocol, TypeVar, TypeVarTuple

from models.backend.interruption import Interrupted, Interruption
from service.engine.running_time import RunningTime

__all__ = ["TOOK_TOO_LONG", "ComputationObserver", "ComputationTimeout", "Computations", "ModelStuck"]

logger = logging.getLogger("softserve")

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_GRACE = 5.0
"""Seconds in which an interrupted computation returns: an operator that has begun is finished."""
_LONGEST_PERIOD = 1.0
"""Seconds between two checks."""


class ComputationTimeout(Exception):
    """A request whose batch, decoding step or preparation was interrupted since it took too long."""

    def __init__(self, timeout: float) -> None:
        super().__init__(
            f"the model has computed for more than {timeout:g} seconds (--computation-timeout) and was interrupted"
        )


class ModelStuck(Exception):
    """A request to a model of which a computation does not return."""

    def __init__(self) -> None:
        super().__init__("a computation of the model does not return, so that the model answers nothing")


TOOK_TOO_LONG = (Interrupted, ComputationTimeout, ModelStuck)
"""Errors of computations that say nothing against the device."""


class ComputationObserver(Protocol):
    """Receives the events of computations; see `service.observability.metrics`."""

    def computation_timed_out(self) -> None: ...
    def stuck_computations(self, number: int) -> None: ...


class _Computation:
    """A function call on a thread, and the future of its result in the event loop."""

    def __init__(
        self, outcome: "asyncio.Future[Any]", awaited: Callable[[], bool], on_end: Callable[[bool], object]
    ) -> None:
        self.outcome, self.awaited, self.on_end = outcome, awaited, on_end
        self.interruption = Interruption()
        self.begun = self.ended = self.timed_out = self.stuck = False
        self.started: float | None = None
        """Time of the first check after it began."""

    def call(self, function: Callable[[*Arguments], Result], arguments: tuple[*Arguments]) -> Result:
        """Call the function. Runs on the thread."""
        self.begun = True
        with self.interruption:
            return function(*arguments)

    def end(self, *, returned: bool) -> None:
        """Call `on_end`, once."""
        if not self.ended:
            self.ended = True
            self.on_end(returned)


class Computations:
    """Runs the computations of one model, and checks them every `period` seconds.

    A computation that takes longer than `timeout` is interrupted, and so is one whose caller is gone.
    One that has not returned a few seconds after the timeout is stuck: its requests fail with `ModelStuck`, and nothing
    more is computed until it returns. Times are those in which the process runs. Use it from one event loop.
    """

    def __init__(
        self,
        timeout: float = math.inf,
        observer: ComputationObserver | None = None,
        *,
        model: str = "a model",
        grace: float = _GRACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout` is in seconds, and `grace` the time after it in which an interrupted computation returns.

        Log lines name the `model`.
        """
        self._model, self._grace = model, grace
        self._timeout, self._observer = timeout, observer
        self._time = RunningTime(min(_LONGEST_PERIOD, timeout / 4), clock)
        self._running: set[_Computation] = set()
        self._stuck = 0
        self.on_stuck: Callable[[], object] = lambda: None
        """Called when a computation is found to be stuck, after `stuck` has become true."""

    @property
    def stuck(self) -> bool:
        """Whether a computation does not return."""
        return self._stuck > 0

    async def run(
        self,
        pool: Executor,
        function: Callable[[*Arguments], Result],
        *arguments: *Arguments,
        awaited: Callable[[], bool] = lambda: True,
        on_end: Callable[[bool], object] = bool,
    ) -> Result:
        """Return the result of a function, which is called on a thread of the pool.

        `awaited` says whether a caller still awaits the result. `on_end` is called with True when the thread has
        returned, or with False when it is given up; which may be after the end of this call where that is cancelled.

        Raises the errors of the function, `Interrupted` where the result is not awaited, `ComputationTimeout` and
        `ModelStuck`.
        """
        self.require_working()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()
        computation = _Computation(outcome, awaited, on_end)
        thread = pool.submit(computation.call, function, arguments)
        self._running.add(computation)
        thread.add_done_callback(partial(self._hand_over, loop, computation))
        try:
            return await outcome
        except asyncio.CancelledError:
            thread.cancel()  # where it has not begun
            raise
        finally:
            del outcome, computation, thread  # an error would refer to itself, and to all of its stack

    def require_working(self) -> None:
        """Raise `ModelStuck` where a computation does not return."""
        if self._stuck:
            raise ModelStuck

    async def watch(self) -> None:
        """Check the computations again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._time.period)
            self.check()

    def check(self) -> None:
        """Interrupt computations that take too long or are not awaited, and give up those that do not return."""
        now = self._time.advance()
        for computation in [each for each in self._running if each.begun]:
            if computation.started is None:
                computation.started = now
            seconds = now - computation.started
            if seconds >= self._timeout and not computation.timed_out:
                self._time_out(computation)
            elif not computation.awaited() and not computation.interruption.requested:
                computation.interruption.interrupt()
            if seconds >= self._timeout + self._grace and not computation.stuck:
                self._give_up(computation)

    def _time_out(self, computation: _Computation) -> None:
        computation.timed_out = True
        logger.error(
            "a computation of %s has taken %g seconds (--computation-timeout): it is interrupted",
            self._model,
            self._timeout,
        )
        if self._observer is not None:
            self._observer.computation_timed_out()
        computation.interruption.interrupt()

    def _give_up(self, computation: _Computation) -> None:
        computation.stuck = True
        logger.critical("%s answers nothing: a computation was interrupted, and does not return", self._model)
        self._count_stuck(1)
        if not computation.outcome.done():
            computation.outcome.set_exception(ModelStuck())
        computation.end(returned=False)
        self.on_stuck()

    def _hand_over(self, loop: asyncio.AbstractEventLoop, computation: _Computation, thread: "Future[Any]") -> None:
        """Pass the result of a thread to the event loop. Called on the thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(self._returned, computation, thread)

    def _returned(self, computation: _Computation, thread: "Future[Any]") -> None:
        """Take the thread's result over."""
        self._running.discard(computation)
        computation.end(returned=True)
        if computation.stuck:
            logger.warning("the computation of %s that did not return has returned", self._model)
            self._count_stuck(-1)
        outcome = computation.outcome
        del computation.outcome  # as in `run`
        error = None if thread.cancelled() else thread.exception()
        if outcome.done():
            return
        if thread.cancelled():
            outcome.cancel()
        elif error is None:
            outcome.set_result(thread.result())
        elif computation.timed_out:
            timeout = ComputationTimeout(self._timeout)
            timeout.__cause__ = error
            outcome.set_exception(timeout)
        else:
            outcome.set_exception(error)

    def _count_stuck(self, change: int) -> None:
        self._stuck += change
        if self._observer is not None:
            self._observer.stuck_computations(self._stuck)
