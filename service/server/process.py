"""Run the service in one process until it is told to stop."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from models.escaping import escaped
from service.engine.memory import limit_heap
from service.engine.running_time import RunningTime
from service.engine.served_models import ServedModels
from service.http.errors import ERROR_FORMS
from service.http.middleware import DRAINING
from service.observability.metrics import Metrics
from service.server.app import create_app
from service.server.connections import Connections
from service.server.forced_exit import EXIT_STUCK, ForcedExit
from service.server.http_protocol import BoundedProtocol
from service.server.watchdog import exit_on_hang
from service.settings import Settings

__all__ = ["Server", "prepare", "serve"]

logger = logging.getLogger("softserve")

_KEEP_ALIVE = 75
"""Seconds; longer than load balancers keep connections, so that these end them."""
_LINGER = 0.5
"""Seconds in which a client that has just connected, or had an answer, sends its request."""
_OTHER_FILES = 512
"""Files that a process has open besides its connections: models, pipes, metrics, connections that are being closed."""


class Server(uvicorn.Server):
    """uvicorn with bounds on connections, and an orderly stop after SIGTERM and SIGINT, which its own server dies of.

    After SIGTERM it is not ready, and accepts connections until the drain delay ends, so that load balancers notice.
    From the signal on, answers advise to close the connection; requests on connections that stay open are answered.
    """

    def __init__(self, settings: Settings, app: FastAPI) -> None:
        metrics: Metrics = app.state.metrics
        self._state = app.state
        self._served_models: ServedModels = app.state.served_models
        self._drain_delay, self._drained_at = settings.drain_delay, 0.0
        self._hang_timeout, self._shutdown_timeout = settings.hang_timeout, settings.shutdown_timeout
        self.forced_exit: ForcedExit | None = None
        """Where this server is all that its process does: ends the process at the latest at the end of its time."""
        self.gave_up = False
        """Whether it stopped because a computation does not return."""
        self._connections = Connections(
            limit=settings.limit_connections,
            header_timeout=settings.header_timeout,
            send_timeout=settings.send_timeout,
            count_refusal=lambda status: metrics.count("", "unmatched", status),
            forms=getattr(app.state, ERROR_FORMS, None),
        )
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_level=settings.log_level,
            log_config=None,
            access_log=False,
            http=cast("type[asyncio.Protocol]", partial(BoundedProtocol, shared=self._connections)),
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=settings.shutdown_timeout,
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        kept = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        opened = cast("set[Any]", self.server_state.connections)
        self._tasks = [asyncio.create_task(self._connections.expire(opened))]
        try:
            await super().serve(sockets)
        finally:
            for task in self._tasks:
                task.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._hang_timeout:
            self._tasks.append(asyncio.create_task(exit_on_hang(self._hang_timeout)))
            self._tasks.append(asyncio.create_task(self._stop_when_stuck(self._hang_timeout)))

    async def _stop_when_stuck(self, timeout: float) -> None:
        """Stop where the same model has been stuck for so many seconds: only a new process can compute again."""
        clock, since = RunningTime(min(1.0, timeout / 4)), dict[str, float]()
        while True:
            await asyncio.sleep(clock.period)
            now = clock.advance()
            since = {name: since.get(name, now) for name in self._served_models.stuck_models}
            if stuck := [name for name, begun in since.items() if now - begun >= timeout]:
                logger.critical("a computation of %s does not return: the process stops", ", ".join(stuck))
                self.gave_up = True
                self.handle_exit(signal.SIGINT, None)
                return

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; after SIGTERM, go on accepting requests for the drain delay, in which the service is not ready."""
        if sig == signal.SIGTERM and not self.should_exit:
            self._served_models.draining = True
            self._drained_at = time.monotonic() + self._drain_delay
        if self.forced_exit is not None:
            self.forced_exit.arm(max(0.0, self._drained_at - time.monotonic()) + _LINGER + self._shutdown_timeout)
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop now."""
        if not await super().on_tick(counter):
            return False
        self.lifespan.state[DRAINING] = True
        return self.force_exit or time.monotonic() >= self._drained_at

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self.lifespan.state[DRAINING] = True
        self._state.shutdown_deadline = time.monotonic() + self._shutdown_timeout
        until = time.monotonic() + _LINGER
        while self.server_state.connections and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.01)
        await super().shutdown(sockets)


class _LineFormatter(logging.Formatter):
    """Escapes control characters: messages name what bundles and clients say, and are read in terminals."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record), lines=True)


def prepare(settings: Settings) -> None:
    """Do what every process does first."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    # A request's texts are tokenized by one thread: those of the library would take the model's processors.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    limit_heap()
    _allow_open_files(settings.limit_connections + _OTHER_FILES)


def _allow_open_files(number: int) -> None:
    """Raise the limit of open files as far as the system allows, so that connections do not exhaust it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= number:
        return
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < number:
        logger.warning("only %d files can be open, too few for this limit_connections: lower it", wanted)


def serve(settings: Settings) -> int:
    """Run the service in this process; return 0 after an orderly stop, 1 where it could not start.

    Where a computation does not return, the process ends with status `EXIT_STUCK`. Raises what `create_app` does.
    """
    prepare(settings)
    app = create_app(settings)
    server = Server(settings, app)
    app.state.served_models.on_failure = lambda: setattr(server, "should_exit", True)
    server.forced_exit = ForcedExit()
    try:
        server.run()
    except SystemExit:  # how uvicorn says that it could not listen, after it logged why
        return 1
    failed = app.state.served_models.failure or not server.started
    status = server.forced_exit.leave(EXIT_STUCK if server.gave_up else 1 if failed else 0)
    if app.state.served_models.loader.busy:
        # Libraries that compute on another thread crash when the interpreter ends.
        logging.shutdown()
        os._exit(status)
    return status
