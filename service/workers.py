"""Several processes that serve beside each other, and what keeps them going.

They accept connections from one socket. Each has a number, by which prometheus-client names the files of its metrics; a
number is used again once its process is gone, so that there are no more files than processes.
"""

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import uvicorn
from prometheus_client import values
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE

from models.backend.cpus import usable_cpus
from service.app import create_app
from service.engine.registry import Registry
from service.metrics import PROCESSES
from service.server import Server, prepare
from service.settings import Settings

__all__ = ["Supervisor", "serve_beside"]

logger = logging.getLogger("softserve")

_SPAWN = multiprocessing.get_context("spawn")
_TICK = 0.1
"""Seconds between two looks at the processes."""
_SILENCE, _LOADING_SILENCE = 10.0, 60.0
"""Seconds after which a process that says nothing is replaced; while it loads, whole seconds may pass in one call."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds after a process that did not get so far as to serve; doubled from try to try."""
_GRACE = 5.0
"""Seconds beyond the time to shut down after which a process is killed."""


def serve_beside(settings: Settings) -> int:
    """Runs the service in several processes; 0 after an orderly stop, 1 where it could not start.

    Raises what `create_app` does.
    """
    prepare(settings)
    app = create_app(settings)  # so that what is wrong with the settings is said once
    with tempfile.TemporaryDirectory(prefix="softserve-metrics-") as directory:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory  # for the processes to come
        try:
            supervisor = Supervisor(settings, [Server(settings, app).config.bind_socket()], Path(directory))
            supervisor.run()
        except SystemExit:  # how uvicorn says that it could not listen, after it logged why
            return 1
        finally:
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]
    return 1 if supervisor.failed else 0


class _Worker:
    """A process, as its supervisor sees it. Raises `OSError` where the system has no room for it."""

    def __init__(self, settings: Settings, sockets: Sequence[socket.socket], number: int) -> None:
        self.number = number
        self.ready = self.retired = False
        self._heard = time.monotonic()
        self._patience = settings.shutdown_timeout + _GRACE
        self._pipe, theirs = _SPAWN.Pipe(duplex=False)
        self.process = _SPAWN.Process(target=_work, args=(settings, list(sockets), theirs, number), daemon=True)
        try:
            self.process.start()
        finally:
            theirs.close()

    def listen(self) -> None:
        """Takes note of what the process says."""
        with contextlib.suppress(EOFError, OSError):
            while not self.retired and self._pipe.poll():
                self.ready = self._pipe.recv() or self.ready
                self._heard = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether it ended, or hangs."""
        patience = self._patience if self.retired else _SILENCE if self.ready else _LOADING_SILENCE
        return not self.process.is_alive() or time.monotonic() - self._heard > patience

    def retire(self) -> None:
        """Lets it finish what it accepted."""
        self.retired, self._heard = True, time.monotonic()
        self.process.terminate()

    def bury(self) -> None:
        """Ends what is left of it. What it counted stays, what it was like goes."""
        self.process.kill()
        self.process.join()
        self._pipe.close()
        mark_process_dead(self.number)  # type: ignore[no-untyped-call]


class Supervisor:
    """Keeps processes serving until SIGTERM or SIGINT: one that ended or hangs is replaced, however it came to it.

    A process takes no connection before its models are loaded, so that the others answer meanwhile. Where one ends
    before any has got so far, all end, and `failed` is set; later ones are tried again and again. SIGHUP replaces all,
    one after the other.
    """

    def __init__(self, settings: Settings, sockets: Sequence[socket.socket], directory: Path) -> None:
        """`directory` is where the processes leave their metrics."""
        self.failed = False
        self._settings, self._sockets, self._directory = settings, sockets, directory
        self._workers: list[_Worker] = []
        self._outdated: list[_Worker] = []
        self._fresh: _Worker | None = None
        self._signals: list[int] = []
        self._served, self._replaced = False, 0
        self._pause, self._next_try = _SHORTEST_PAUSE, 0.0

    def run(self) -> None:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        kept = {number: signal.signal(number, self._note_signal) for number in numbers}
        try:
            while not self._stopping and not self.failed:
                self._look()
                time.sleep(_TICK)
        finally:
            self._stop()
            for number, handler in kept.items():
                signal.signal(number, handler)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    @property
    def _stopping(self) -> bool:
        return signal.SIGTERM in self._signals or signal.SIGINT in self._signals

    def _look(self) -> None:
        for worker in self._workers:
            worker.listen()
        if any(worker.ready for worker in self._workers):
            self._served = True
        for worker in [worker for worker in self._workers if worker.over]:
            self._bury(worker)
        if signal.SIGHUP in self._signals:
            self._signals.remove(signal.SIGHUP)
            self._outdated = [worker for worker in self._workers if not worker.retired]
        self._renew()
        self._fill_up()

    def _bury(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.bury()
        self._tell_processes()
        if worker.retired or self._stopping:
            return
        logger.error("process %d ended with status %s", worker.process.pid, worker.process.exitcode)
        self._replaced += 1
        self.failed = not self._served
        if worker.ready:
            self._pause = _SHORTEST_PAUSE
        else:
            self._wait()

    def _renew(self) -> None:
        """Replaces what SIGHUP found, each by one that is ready."""
        self._outdated = [worker for worker in self._outdated if worker in self._workers]
        fresh = self._fresh
        if fresh is None:
            self._fresh = self._start() if self._outdated else None
        elif fresh not in self._workers:
            logger.error("a new process did not get ready: those before it go on")
            self._fresh, self._outdated = None, []
        elif fresh.ready:
            self._fresh = None
            if len(self._serving) > self._settings.workers:
                (self._outdated.pop(0) if self._outdated else fresh).retire()

    @property
    def _serving(self) -> list[_Worker]:
        """Those that are meant to stay."""
        return [worker for worker in self._workers if not worker.retired and worker is not self._fresh]

    def _fill_up(self) -> None:
        missing = self._settings.workers - len(self._serving)
        for _ in range(0 if self.failed else missing):
            if time.monotonic() >= self._next_try:
                self._start()

    def _start(self) -> _Worker | None:
        if self._stopping:
            return None
        number = min(set(range(len(self._workers) + 1)) - {worker.number for worker in self._workers})
        try:
            worker = _Worker(self._settings, self._sockets, number)
        except OSError as error:
            logger.error("no process can be started: %s", error)
            self._wait()
            return None
        self._workers.append(worker)
        self._tell_processes()
        return worker

    def _wait(self) -> None:
        self._next_try = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _tell_processes(self) -> None:
        """Leaves for the metrics which processes there are."""
        known = {
            "supervisor": os.getpid(),
            "workers": [worker.process.pid for worker in self._workers],
            "replaced": self._replaced,
        }
        draft = self._directory / "draft"
        draft.write_text(json.dumps(known), encoding="ascii")
        draft.replace(self._directory / PROCESSES)

    def _stop(self) -> None:
        """Takes no connections any more, and lets all processes finish what they accepted."""
        for listener in self._sockets:
            listener.close()
        for worker in self._workers:
            if not worker.retired:
                worker.retire()
        while not all(worker.over for worker in self._workers):
            time.sleep(_TICK)
        for worker in self._workers:
            worker.bury()


def _work(settings: Settings, sockets: list[socket.socket], pipe: Connection, number: int) -> None:
    """What one of several processes does, with its share of the processors."""
    values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
    prepare(settings)
    threads = settings.threads or max(1, usable_cpus() // settings.workers)
    app = create_app(settings.model_copy(update={"threads": threads}), load_first=True)
    app.state.registry.on_failure = partial(_give_up, app.state.registry)
    server = Server(settings, app)
    threading.Thread(target=_say, args=(pipe, server), daemon=True).start()
    server.run(sockets)


def _give_up(registry: Registry) -> None:
    """Ends a process that serves nothing yet."""
    logger.error("a model failed to load: %s", registry.failure)
    logging.shutdown()
    os._exit(STARTUP_FAILURE)


def _say(pipe: Connection, server: uvicorn.Server) -> None:
    """Tells the supervisor again and again that this process runs, and whether it serves."""
    with contextlib.suppress(OSError):
        while True:
            pipe.send(server.started)
            time.sleep(_TICK if not server.started else 1.0)
    os.kill(os.getpid(), signal.SIGTERM)  # there is no supervisor any more, which would end this process
