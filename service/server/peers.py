"""The processes of a service pass on the calls of administrators: each listens on a Unix socket for those of others.

A call is made in the process that it reached, and then in the others, one after the other, so that one that loads a
model leaves the rest to answer. A lock on a file lets one change be made at a time. A process that starts takes over
from another one what earlier calls have changed.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import pickle
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

from service.engine.administration import Call, ReadChanges, SeveralProcesses, take_over
from service.engine.client import Engine
from service.engine.served_models import NotReady

__all__ = ["Peers"]

logger = logging.getLogger("softserve")

_SOCKET = "administration-{}"
"""File of a process's socket, by its index."""
_LOCK = "administration.lock"
_POLL = 0.05
"""Seconds between two tries to get the lock."""
_READ_TIMEOUT = 5.0
"""Seconds in which a process answers a call that changes nothing."""
_LENGTH = 8
"""Bytes of the length of a message."""

ResultT = TypeVar("ResultT")


class Peers(SeveralProcesses):
    """The administration of processes that share a directory, which no other user can read."""

    def __init__(self, engine: Engine, directory: Path, index: int) -> None:
        """`index` is that of this process; none that runs has the same."""
        super().__init__(engine)
        self._directory, self._own = directory, _SOCKET.format(index)
        self._timeout = 2 * engine.settings.load_timeout + _READ_TIMEOUT
        """Seconds in which a process makes a change: a promoted shadow is loaded twice, the first time on trial."""
        self._patience = (engine.settings.workers + 1) * self._timeout

    async def _passed_on(self, call: Call[ResultT]) -> list[ResultT]:
        answers = [await self._asked(name, call) for name in self._others()]
        return [result for succeeded, result in answers if succeeded]

    def _others(self) -> list[str]:
        return sorted(path.name for path in self._directory.glob(_SOCKET.format("*")) if path.name != self._own)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with self._turn():
            await self._take_over()
            server = await asyncio.start_unix_server(self._answer, sock=self._bound())
        try:
            yield
        finally:
            server.close()
            self._directory.joinpath(self._own).unlink(missing_ok=True)
            await self.finish()

    def _bound(self) -> socket.socket:
        self._directory.joinpath(self._own).unlink(missing_ok=True)  # of a process that was killed
        listener = socket.socket(socket.AF_UNIX)
        with _near(self._directory) as near:
            listener.bind(f"{near}/{self._own}")
        return listener

    async def _take_over(self) -> None:
        """Serve what another process does; raises the errors of loading, after which this one must not serve."""
        for name in self._others():
            succeeded, changes = await self._asked(name, ReadChanges())
            if succeeded:
                await take_over(changes, self._engine)
                break

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until no other process makes a call; raises `NotReady`. The system releases the lock of one that
        ends."""
        until = time.monotonic() + self._patience
        with open(self._directory / _LOCK, "ab") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise NotReady("another call of an administrator does not end") from None
                    await asyncio.sleep(_POLL)
                else:
                    break
            yield

    async def _asked(self, name: str, call: Call[ResultT]) -> tuple[bool, Any]:
        """Return whether another process has made a call, and its result."""
        try:
            async with asyncio.timeout(self._timeout if call.changes else _READ_TIMEOUT):
                with _near(self._directory) as near:
                    reader, writer = await asyncio.open_unix_connection(f"{near}/{name}")
                try:
                    _write(writer, call)
                    await writer.drain()
                    answer: tuple[bool, Any] = await _read(reader)
                finally:
                    writer.close()
        except TimeoutError:
            logger.error("%s does not answer: %s", name, call)
            return False, None
        except (OSError, asyncio.IncompleteReadError):  # it is gone; one that replaces it takes over from another
            return False, None
        if not answer[0]:
            logger.error("%s has failed: %s: %s", name, call, answer[1])
        return answer

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Make a call of another process, and answer whether that succeeded, with the result or the error."""
        try:
            call: Call[Any] = await _read(reader)
            try:
                answer = True, await self.make(call)
            except Exception as error:
                answer = False, str(error)
            _write(writer, answer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the other process is gone, or has given up
        finally:
            writer.close()


@contextlib.contextmanager
def _near(directory: Path) -> Iterator[Path]:
    """Yield a short path of a directory: the path of a socket has at most 107 bytes."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        yield directory
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield descriptors / str(descriptor)
    finally:
        os.close(descriptor)


def _write(writer: asyncio.StreamWriter, message: object) -> None:
    content = pickle.dumps(message)
    writer.write(len(content).to_bytes(_LENGTH, "big") + content)


async def _read(reader: asyncio.StreamReader) -> Any:
    length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
    return pickle.loads(await reader.readexactly(length))
