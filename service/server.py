"""Runs the service until it is told to stop: in this process, or in several beside each other."""

import asyncio
import contextlib
import functools
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from models.backend.cpus import usable_cpus
from service.app import create_app
from service.engine.registry import Registry
from service.memory import use_few_arenas
from service.middleware import DRAINING
from service.settings import Settings

__all__ = ["Server", "Supervisor", "serve"]

logger = logging.getLogger("softserve")

_KEEP_ALIVE = 75
"""Seconds; longer than load balancers keep connections, so that these end them."""
_LINGER = 0.5
"""Seconds in which a client that has just connected, or had an answer, sends its request."""
_SILENCE = 10
"""Seconds after which a process that says nothing is replaced."""
_LOADING = 300
"""Seconds that a process may take for its models until it replaces another one (SIGHUP)."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds after a process that did not get so far as to serve; doubled from try to try."""


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


def serve(settings: Settings) -> int:
    """Runs the service; 0 after an orderly stop, 1 where it could not start.

    Raises what `create_app` does.
    """
    _prepare(settings)
    try:
        return _serve_alone(settings) if settings.workers == 1 else _serve_beside(settings)
    except SystemExit:  # how uvicorn says that it could not listen, after it logged why
        return 1


def _prepare(settings: Settings) -> None:
    """What every process does first."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    use_few_arenas()


def _config(settings: Settings, app: object, *, factory: bool = False) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        factory=factory,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level=settings.log_level,
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=settings.shutdown_timeout,
    )


def _serve_alone(settings: Settings) -> int:
    app = create_app(settings)
    server = Server(_config(settings, app))
    app.state.registry.on_failure = lambda: setattr(server, "should_exit", True)
    server.run()
    return 1 if app.state.registry.failure or not server.started else 0


def _serve_beside(settings: Settings) -> int:
    create_app(settings)  # so that what is wrong with the settings is said once
    config = _config(settings, functools.partial(_worker, settings), factory=True)
    with tempfile.TemporaryDirectory(prefix="softserve-metrics-") as directory:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory  # each process writes its counts there
        try:
            supervisor = Supervisor(config, sockets=[config.bind_socket()])
            supervisor.run()
        finally:
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]
    return 1 if supervisor.failed else 0


class _Process(Process):
    @property
    def server(self) -> Server:
        if self._server is None:
            self._server = Server(self.config)
        assert isinstance(self._server, Server)
        return self._server


class Supervisor(Multiprocess):
    """Keeps processes serving: one that ended or hangs is replaced, however it came to it.

    A process takes no connection before its models are loaded, so that the others answer meanwhile. Where one ends
    before any has got so far, all end, and `failed` is set; later ones are tried again and again.
    """

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self.failed = False
        self._ready: set[Process] = set()
        self._ended: set[Process] = set()
        self._known: set[Process] = set()
        self._served = False
        self._pause, self._next_try = _SHORTEST_PAUSE, 0.0
        for number in (signal.SIGINT, signal.SIGTERM):  # also while processes are being replaced
            signal.signal(number, lambda *_: self.should_exit.set())

    def init_processes(self) -> None:
        self.processes = [self._started() for _ in range(self.processes_num)]

    def handle_ttin(self) -> None:
        self.processes_num += 1
        self.processes.append(self._started())

    def restart_all(self) -> None:
        for index, old in enumerate(self.processes):
            new = self._started()
            if not new.wait_until_ready(_LOADING, self.should_exit):
                new.kill()
                new.join()
                if not self.should_exit.is_set():
                    logger.error("process %d did not get ready; process %d goes on", new.pid, old.pid)
                return
            old.terminate()
            old.join()
            self.processes[index] = new

    def _started(self) -> Process:
        process = _Process(self.config, self.sockets)
        process.start()
        return process

    def keep_subprocess_alive(self) -> None:
        self._forget_replaced()
        ill = [process for process in self.processes if process in self._ended or not self._is_well(process)]
        for process in ill:
            if process not in self._ended:
                self._end(process)
            if not self._served:
                self.failed = True
                self.should_exit.set()
            elif time.monotonic() >= self._next_try:
                self.processes[self.processes.index(process)] = self._started()

    def _forget_replaced(self) -> None:
        """Takes gauges of processes that are gone out of the metrics, also of those that uvicorn replaced (SIGHUP)."""
        for process in self._known.difference(self.processes):
            _forget(process)
            self._ready.discard(process)
            self._ended.discard(process)
        self._known = set(self.processes)

    def _is_well(self, process: Process) -> bool:
        if not process.process.is_alive():
            return False
        if process not in self._ready and process.is_ready(_SILENCE):
            self._ready.add(process)
            self._served, self._pause = True, _SHORTEST_PAUSE
        return process.ping(_SILENCE)

    def _end(self, process: Process) -> None:
        """Ends what is left of a process, and decides when the next one is started."""
        process.kill()
        process.join()
        _forget(process)
        logger.error("process %d ended with status %s", process.pid, process.exitcode)
        self._ended.add(process)
        if process not in self._ready:
            self._next_try = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def _forget(process: Process) -> None:
    """What it counted stays, what it was like goes."""
    mark_process_dead(process.pid)  # type: ignore[no-untyped-call]


def _worker(settings: Settings) -> FastAPI:
    """The application of one of several processes, which share the processors."""
    _prepare(settings)
    threads = settings.threads or max(1, usable_cpus() // settings.workers)
    app = create_app(settings.model_copy(update={"threads": threads}), load_first=True)
    app.state.registry.on_failure = functools.partial(_give_up, app.state.registry)
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    return app


def _give_up(registry: Registry) -> None:
    """Ends a process that serves nothing yet."""
    logger.error("a model failed to load: %s", registry.failure)
    logging.shutdown()
    os._exit(STARTUP_FAILURE)


def _end_with_supervisor() -> None:
    """Nobody would end this process if the supervisor were killed."""
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None
    multiprocessing.connection.wait([supervisor.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
