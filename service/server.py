"""Runs the service in one process until it is told to stop."""

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.app import create_app
from service.memory import use_few_arenas
from service.middleware import DRAINING
from service.settings import Settings

__all__ = ["Server", "configuration", "prepare", "serve"]

_KEEP_ALIVE = 75
"""Seconds; longer than load balancers keep connections, so that these end them."""
_LINGER = 0.5
"""Seconds in which a client that has just connected, or had an answer, sends its request."""


class Server(uvicorn.Server):
    """Ends with the exit status of an orderly stop after SIGTERM and SIGINT; uvicorn's own dies of the signal.

    Connections that are open then get answers to what they still send, each with the advice to close.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        kept = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.handle_exit(number, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self.lifespan.state[DRAINING] = True
        until = time.monotonic() + _LINGER
        while self.server_state.connections and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.01)
        await super().shutdown(sockets)


def prepare(settings: Settings) -> None:
    """What every process does first."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    use_few_arenas()


def configuration(settings: Settings, app: FastAPI) -> uvicorn.Config:
    """How uvicorn runs the service."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=settings.shutdown_timeout,
    )


def serve(settings: Settings) -> int:
    """Runs the service in this process; 0 after an orderly stop, 1 where it could not start.

    Raises what `create_app` does.
    """
    prepare(settings)
    app = create_app(settings)
    server = Server(configuration(settings, app))
    app.state.registry.on_failure = lambda: setattr(server, "should_exit", True)
    try:
        server.run()
    except SystemExit:  # how uvicorn says that it could not listen, after it logged why
        return 1
    return 1 if app.state.registry.failure or not server.started else 0
