"""Calls of administrators on Ray Serve: made in the replica that they reached, and then in all others at once."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray import serve

from service.engine.administration import Call, Changes, ReadChanges, SeveralProcesses, take_over
from service.engine.client import Engine
from service.engine.served_models import NotReady

__all__ = ["Answer", "Question", "ReplicaAdministration"]

logger = logging.getLogger("softserve")

_READ_TIMEOUT = 5.0
"""Seconds in which replicas answer a call that changes nothing."""
_POLL = 0.5
"""Seconds between two tries to get the turn."""
_CHECK_SECONDS, _LAST_CHECK = 5.0, 60.0
"""A replica that starts looks so often whether it has missed a change, until it has been seen by others for so long."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Question:
    """A call of a replica to all others."""

    sender: str
    revision: int
    """The sender's, which has made the call."""
    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a replica, without a result from the one that asked."""

    replica: str
    revision: int
    result: Any


class _Turn:
    """An actor that exists, under its name, while a replica makes a change; it ends with the replica."""


_TURN: Any = ray.remote(num_cpus=0)(_Turn)


class ReplicaAdministration(SeveralProcesses):
    """The administration of an application of Ray Serve, whose replicas have the method `answer` under some name."""

    def __init__(self, engine: Engine, method: str) -> None:
        super().__init__(engine)
        self._method = method
        self._timeout = 2 * engine.settings.load_timeout + _READ_TIMEOUT

    async def answer(self, question: Question) -> Answer | None:
        """Make the call of another replica; raises its errors."""
        own = _own_name()
        if question.sender == own:
            return Answer(own, self.revision, None)
        if question.call.changes and question.revision != self.revision + 1:
            self.outdated = True  # it has missed a change, or made one that the sender has missed
        return Answer(own, self.revision, await self.make(question.call))

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with self._turn():
            await self._take_over()
        checking = asyncio.create_task(self._check())
        try:
            yield
        finally:
            checking.cancel()
            await asyncio.wait([checking])
            await self.finish()

    async def _passed_on(self, call: Call[ResultT]) -> list[ResultT]:
        return [answer.result for answer in await self._asked(call) if answer.replica != _own_name()]

    async def _take_over(self) -> None:
        """Serve what the replica with the most changes does; raises the errors of loading."""
        others = [answer for answer in await self._asked(ReadChanges()) if answer.replica != _own_name()]
        if others:
            latest = max(others, key=lambda answer: answer.revision)
            changes: Changes = latest.result
            await take_over(changes, self._engine)
            self.revision = latest.revision

    async def _check(self) -> None:
        """Find out whether a change was made after this replica took over, and before the others saw it."""
        seen: float | None = None
        while seen is None or time.monotonic() - seen < _LAST_CHECK:
            await asyncio.sleep(_CHECK_SECONDS)
            before = self.revision
            answers = await self._asked(ReadChanges())
            if seen is None and any(answer.replica == _own_name() for answer in answers):
                seen = time.monotonic()
            if self.revision == before < max((answer.revision for answer in answers), default=0) and not self._changing:
                logger.error("a change of an administrator was missed: the replica is replaced")
                self.outdated = True
                return

    async def _asked(self, call: Call[Any]) -> Sequence[Answer]:
        """Return the answers of all replicas that Ray knows to run, but for those with an error."""
        question = Question(_own_name(), self.revision, call)
        timeout = self._timeout if call.changes else _READ_TIMEOUT
        answers = await asyncio.to_thread(self._broadcast, question, timeout)
        for error in (answer for answer in answers if isinstance(answer, BaseException)):
            logger.error("a replica has failed: %s: %s", call, error or type(error).__name__)
        return [answer for answer in answers if isinstance(answer, Answer)]

    def _broadcast(self, question: Question, timeout: float) -> Sequence[Any]:
        context = serve.get_replica_context()
        handle = serve.get_deployment_handle(context.deployment, context.app_name)
        try:
            found: Sequence[Any] = handle.broadcast(self._method, question).results(
                timeout_s=timeout, return_exceptions=True
            )
        except Exception as error:  # Ray's have no class in common
            return [error]
        return found

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until no other replica makes a change; raises `NotReady`."""
        name = f"softserve-administration-{serve.get_replica_context().app_name}"
        actor = await asyncio.to_thread(_patiently, lambda: _TURN.options(name=name).remote(), self._timeout)
        try:
            yield
        finally:
            await asyncio.to_thread(ray.kill, actor)


def _patiently(function: Callable[[], ResultT], timeout: float) -> ResultT:
    """Return the result of a function that raises `ValueError` as long as an actor of that name exists."""
    until = time.monotonic() + timeout
    while True:
        try:
            return function()
        except ValueError:
            if time.monotonic() > until:
                raise NotReady("another call of an administrator does not end") from None
            time.sleep(_POLL)


def _own_name() -> str:
    name: str = serve.get_replica_context().replica_tag
    return name
