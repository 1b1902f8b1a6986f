"""Several processes that serve one port, and the supervisor that replaces them.

They accept connections from one socket. Each has an index, by which prometheus-client names the files of its metrics;
an index is used again once its process is gone, so that there are no more files than processes.

`uvicorn.supervisors.Multiprocess` (0.54) is not enough here. Its processes answer its questions from a thread, also
where the event loop is blocked or a computation does not return; it kills one that is paused; it starts one that ends
at once again and again without a pause; it waits for ever for one that does not end at SIGTERM; while none serves,
clients wait for the port instead of getting 503; and its processes have no index.
"""

import asyncio
import contextlib
import json
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

from fastapi import FastAPI
from prometheus_client import values
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE

from models.backend.cpus import usable_cpus
from service.engine.administration import Administration
from service.engine.running_time import RunningTime
from service.engine.served_models import ServedModels
from service.engine.shared_counters import SharedCounters
from service.observability.metrics import PROCESSES
from service.server.app import create_app
from service.server.forced_exit import ForcedExit
from service.server.peers import Peers
from service.server.process import Server, prepare
from service.server.unavailable import Unavailable
from service.settings import Settings

__all__ = ["Supervisor", "send_heartbeat", "serve_multiprocess"]

logger = logging.getLogger("softserve")

_SPAWN = multiprocessing.get_context("spawn")
_CHECK_INTERVAL = 0.1
"""Seconds between two checks of the processes."""
_HEARTBEAT_INTERVAL = 1.0
"""Longest time in seconds between two heartbeats of a process."""
_LOADING_HEARTBEAT_TIMEOUT = 60.0
"""Least seconds without a heartbeat after which a loading process is replaced: one call may block for whole seconds."""
_LOADING, _SERVING = b"l", b"s"
"""Heartbeats."""
STUCK, OUTDATED = b"x", b"o"
"""Heartbeats of a process that serves, and must be replaced by another one."""
_FAULTS = {STUCK: "a computation does not return", OUTDATED: "a call of an administrator has failed"}
_NOTICED = 2.0
"""Seconds without a heartbeat after which a process may be paused."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds to wait after a process that ended before it served; doubled from try to try."""
_COUNTERS = "key-counters"
"""File of the counters of API keys, in the directory of the metrics."""
_GRACE = 5.0
"""Seconds beyond the time to shut down after which a process is killed."""


def serve_multiprocess(settings: Settings) -> int:
    """Run the service in several processes; return 0 after an orderly stop, 1 where it could not start.

    Raises what `create_app` does.
    """
    prepare(settings)
    app = create_app(settings)  # so that errors of the settings are reported once
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
    """A process, as its supervisor sees it. The constructor raises `OSError` where the system has no room for it.

    `now` is the time for which the supervisor has run: one that is paused, with its processes, has not waited for them.
    """

    def __init__(self, settings: Settings, sockets: Sequence[socket.socket], index: int, now: float) -> None:
        self.index = index
        self.ready = self.draining = False
        self.fault: str | None = None
        """Why it must be replaced."""
        self._paused = False
        self._now = self._last_heartbeat = now
        self._drain_timeout = settings.drain_delay + settings.shutdown_timeout + _GRACE
        self._heartbeat_timeout = settings.heartbeat_timeout
        self._pipe, theirs = _SPAWN.Pipe(duplex=False)
        os.set_blocking(self._pipe.fileno(), False)
        self.process = _SPAWN.Process(target=_work, args=(settings, list(sockets), theirs, index), daemon=True)
        try:
            self.process.start()
        finally:
            theirs.close()

    def read_heartbeats(self, now: float) -> None:
        """Take note of the heartbeats that the process has sent."""
        self._now = now
        if self.draining:
            return
        with contextlib.suppress(BlockingIOError):  # there is none
            if heartbeats := os.read(self._pipe.fileno(), 1 << 16):
                self.ready = self.ready or not heartbeats.endswith(_LOADING)
                self.fault = _FAULTS.get(heartbeats[-1:])
                self._last_heartbeat, self._paused = now, False
        if now - self._last_heartbeat > min(_NOTICED, self._timeout / 2) and _is_stopped(self.process.pid):
            self._last_heartbeat = now
            if not self._paused:
                logger.warning("process %d is stopped (SIGSTOP, or a debugger): it is not replaced", self.process.pid)
            self._paused = True

    @property
    def over(self) -> bool:
        """Whether it ended, or sends no heartbeats."""
        return not self.process.is_alive() or self._now - self._last_heartbeat > self._timeout

    @property
    def _timeout(self) -> float:
        if self.draining:
            return self._drain_timeout
        return self._heartbeat_timeout if self.ready else max(self._heartbeat_timeout, _LOADING_HEARTBEAT_TIMEOUT)

    def drain(self, number: int) -> None:
        """Let the process finish its requests and end; told by SIGTERM, it accepts more for the drain delay."""
        self.draining, self._last_heartbeat = True, self._now
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)

    def reap(self) -> None:
        """Kill the process if it still runs, and release it; its counters are kept, its gauges removed."""
        self.process.kill()
        self.process.join()
        self._pipe.close()
        mark_process_dead(self.index)  # type: ignore[no-untyped-call]


def _is_stopped(pid: int | None) -> bool:
    """Return whether a process is stopped by a signal or a debugger (Linux; elsewhere False)."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        return state in ("T", "t")
    return False


class Supervisor:
    """Keeps processes serving until SIGTERM or SIGINT: one that ended or hangs is replaced, whatever the reason.

    A process takes no connection before its models are loaded, so that the others answer meanwhile. Where one ends
    before any has got so far, all end, and `failed` is set; later ones are tried again and again, and while none serves
    the supervisor answers 503. SIGHUP replaces all, one after the other; so is one in which a computation does not
    return, or a call of an administrator has failed that others have made.
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
        self._time = RunningTime(_CHECK_INTERVAL)
        self._unavailable = Unavailable(sockets)
        self._noted: set[_Worker] = set()
        """Faulty processes that are in the log."""
        self._pause, self._next_try = _SHORTEST_PAUSE, 0.0

    def run(self) -> None:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        kept = {number: signal.signal(number, self._note_signal) for number in numbers}
        try:
            while not self._stopping and not self.failed:
                self._check()
                time.sleep(_CHECK_INTERVAL)
        finally:
            self._stop()
            for number, handler in kept.items():
                signal.signal(number, handler)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    @property
    def _stopping(self) -> bool:
        return signal.SIGTERM in self._signals or signal.SIGINT in self._signals

    def _check(self) -> None:
        now = self._time.advance()
        for worker in self._workers:
            worker.read_heartbeats(now)
        if any(worker.ready for worker in self._workers):
            self._served = True
        for worker in [worker for worker in self._workers if worker.over]:
            self._reap(worker)
        if signal.SIGHUP in self._signals:
            self._signals.remove(signal.SIGHUP)
            self._outdated = [worker for worker in self._workers if not worker.draining]
        self._replace_faulty()
        self._fill_up()
        self._renew()
        serving = any(worker.ready and not worker.draining for worker in self._workers)
        self._unavailable.poll(accept=self._served and not serving)

    def _replace_faulty(self) -> None:
        """Let processes that have a fault be replaced by ones that are ready."""
        self._noted &= set(self._workers)
        faulty = {worker for worker in self._workers if worker.fault and not worker.draining}
        for worker in faulty - self._noted:
            logger.error("%s in process %d: it is replaced", worker.fault, worker.process.pid)
            self._replaced += 1
            self._write_processes()
        self._noted |= faulty
        if time.monotonic() >= self._next_try:
            self._outdated += [worker for worker in faulty if worker not in self._outdated]

    def _reap(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.reap()
        self._write_processes()
        if worker.draining or self._stopping:
            return
        logger.error("process %d ended with status %s", worker.process.pid, worker.process.exitcode)
        self._replaced += 1
        self.failed = not self._served
        if worker.ready:
            self._pause = _SHORTEST_PAUSE
        else:
            logger.error("it ended before it served; the next one is started in %g seconds", self._pause)
            self._wait()
        if self._served and not any(each.ready and not each.draining for each in self._workers):
            logger.error("no process serves: requests are answered with 503 until one has loaded its models")

    def _renew(self) -> None:
        """Replace the processes that SIGHUP found, each by one that is ready."""
        self._outdated = [worker for worker in self._outdated if worker in self._workers]
        fresh = self._fresh
        if fresh is None:
            if self._outdated and time.monotonic() >= self._next_try:
                self._fresh = self._start()
        elif fresh not in self._workers:
            logger.error("a new process did not get ready: those before it go on")
            self._fresh, self._outdated = None, []
        elif fresh.ready:
            self._fresh = None
            if len(self._serving) > self._settings.workers:
                # Not SIGTERM: others serve the port, which must not answer that it is not ready.
                (self._outdated.pop(0) if self._outdated else fresh).drain(signal.SIGINT)

    @property
    def _serving(self) -> list[_Worker]:
        """Processes that are neither draining nor a replacement that is still loading."""
        return [worker for worker in self._workers if not worker.draining and worker is not self._fresh]

    def _fill_up(self) -> None:
        missing = self._settings.workers - len(self._serving)
        for _ in range(0 if self.failed else missing):
            if time.monotonic() >= self._next_try:
                self._start()

    def _start(self) -> _Worker | None:
        if self._stopping:
            return None
        index = min(set(range(len(self._workers) + 1)) - {worker.index for worker in self._workers})
        try:
            worker = _Worker(self._settings, self._sockets, index, self._time.seconds)
        except OSError as error:
            logger.error("no process can be started: %s", error)
            self._wait()
            return None
        self._workers.append(worker)
        self._write_processes()
        return worker

    def _wait(self) -> None:
        self._next_try = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _write_processes(self) -> None:
        """Write the list of processes to the file that the metrics read."""
        known = {
            "supervisor": os.getpid(),
            "workers": [worker.process.pid for worker in self._workers],
            "replaced": self._replaced,
        }
        draft = self._directory / "draft"
        draft.write_text(json.dumps(known), encoding="ascii")
        draft.replace(self._directory / PROCESSES)

    def _stop(self) -> None:
        """Let all processes finish the requests that they accept, for the drain delay and no longer."""
        self._unavailable.close()
        for listener in self._sockets:
            listener.close()
        for worker in self._workers:
            if not worker.draining:
                worker.drain(signal.SIGTERM)
        while not all(worker.over for worker in self._workers):
            time.sleep(_CHECK_INTERVAL)
            now = self._time.advance()
            for worker in self._workers:
                worker.read_heartbeats(now)
        for worker in self._workers:
            worker.reap()


def _work(settings: Settings, sockets: list[socket.socket], pipe: Connection, index: int) -> None:
    """Run one of several processes, with its share of the processors."""
    values.ValueClass = values.MultiProcessValue(lambda: index)  # type: ignore[no-untyped-call]
    prepare(settings)
    threads = settings.threads or max(1, usable_cpus() // settings.workers)
    counters = None if settings.api_keys is None else _counters(settings, index)
    app = create_app(settings.model_copy(update={"threads": threads}), load_first=True, counters=counters)
    app.state.served_models.on_failure = partial(_exit_at_failure, app.state.served_models)
    if settings.admin_keys is not None:
        app.state.administration = Peers(app.state.engine, Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]), index)
    server = _WorkerServer(settings, app, pipe)
    server.forced_exit = ForcedExit()
    server.run(sockets)
    server.forced_exit.leave(0)


def _counters(settings: Settings, index: int) -> SharedCounters:
    """Return the counters of API keys that the processes share; those that drain have an index too."""
    processes = 2 * settings.workers + 2
    path = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]) / _COUNTERS
    return SharedCounters(path, processes, index % processes)


class _WorkerServer(Server):
    """Sends heartbeats from the event loop, so that a process whose loop is blocked sends none."""

    def __init__(self, settings: Settings, app: FastAPI, pipe: Connection) -> None:
        super().__init__(settings, app)
        self._administration: Administration = app.state.administration
        self._pipe = pipe
        self._interval = min(_HEARTBEAT_INTERVAL, settings.heartbeat_timeout / 4)
        os.set_blocking(pipe.fileno(), False)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        beating = asyncio.create_task(self._send_heartbeats())
        try:
            await super().serve(sockets)
        finally:
            beating.cancel()

    async def _stop_when_stuck(self, timeout: float) -> None:
        """Do nothing: the supervisor lets another process get ready before it stops this one."""

    @property
    def _fault(self) -> bytes:
        if self._served_models.stuck_models:
            return STUCK
        return OUTDATED if self._administration.outdated else b""

    async def _send_heartbeats(self) -> None:
        while send_heartbeat(self._pipe.fileno(), self.started, self._fault):
            await asyncio.sleep(self._interval if self.started else min(_CHECK_INTERVAL, self._interval))
        os.kill(os.getpid(), signal.SIGTERM)  # there is no supervisor any more, which would end this process


def send_heartbeat(descriptor: int, serving: bool, fault: bytes = b"") -> bool:
    """Write a heartbeat to a pipe that does not block; return whether the other end is still open."""
    try:
        os.write(descriptor, (fault or _SERVING) if serving else _LOADING)
    except BlockingIOError:
        pass  # the pipe is full of heartbeats that the supervisor has yet to read
    except OSError:
        return False
    return True


def _exit_at_failure(served_models: ServedModels) -> None:
    """End a process that serves nothing yet."""
    logger.error("a model failed to load: %s", served_models.failure)
    logging.shutdown()
    os._exit(STARTUP_FAILURE)
