"""Train rows of comparison tables in processes of their own, several at a time, within a time."""

import contextlib
import math
import multiprocessing
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from training.device import choose_device
from training.run.interruption import Interrupted, raise_on_signals
from training.run.session import use_threads
from training.search.tables.definitions import Table
from training.search.tables.runner import Places, train_row
from training.search.tables.schedule import Job, next_job

__all__ = ["Limits", "train_rows"]

_GRACE = 1.1
"""Factor of the time after which rows that are still being trained are interrupted; the same command resumes them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The computer's share of a training of rows."""

    processes: int
    """Rows that are trained at the same time."""
    device: str
    threads: int
    """Threads of each process."""
    seconds: float = math.inf
    """Time after which no row is started."""


def train_rows(
    jobs: Sequence[Job],
    tables: Mapping[str, Table],
    expected: Mapping[Job, float],
    places: Places,
    limits: Limits,
    report: Callable[[str], None],
    ended: Callable[[Job], None],
) -> list[Job]:
    """Train rows in their order, and return those that were not: the time was too short, or they ended with an error.

    A row is started where its expected time (seconds) is left, corrected by the times of the rows that have ended. The
    output of a row is in `<row>-<seed>.log` of the table's directory of runs. `ended` is called after each result.
    """
    left, failed, ratios = list(jobs), list[Job](), list[float]()
    running: dict[BaseProcess, tuple[Job, float]] = {}
    started = time.monotonic()
    try:
        while True:
            while len(running) < limits.processes:
                remaining = started + limits.seconds - time.monotonic()
                scale = statistics.median(ratios) if ratios else 1.0
                job = next_job(left, [other for other, _ in running.values()], expected, remaining / scale)
                if job is None:
                    break
                left.remove(job)
                process, log = _started(tables[job.table], job, places, limits)
                running[process] = job, time.monotonic()
                report(f"{job.table}: row {job.row}, seed {job.seed} has begun; its output is in {log}")
            if not running:
                return left + failed
            rest = started + _GRACE * limits.seconds - time.monotonic()
            done = wait([each.sentinel for each in running], None if math.isinf(rest) else max(0.0, rest))
            if not done:
                report("the time has passed: rows that are not done are interrupted, and the same command resumes them")
                return left + failed + [job for job, _ in running.values()]
            for process in [each for each in running if each.sentinel in done]:
                job, since = running.pop(process)
                process.join()
                if process.exitcode:
                    failed.append(job)
                    report(
                        f"{job.table}: row {job.row}, seed {job.seed} ended with an error: {_last_line(job, places)}"
                    )
                    continue
                ratios.append((time.monotonic() - since) / max(1e-9, expected[job]))
                ended(job)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.join()


def _started(table: Table, job: Job, places: Places, limits: Limits) -> tuple[BaseProcess, Path]:
    log = _log(job, places)
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = table, job, places, limits, log
    process = multiprocessing.get_context("spawn").Process(target=_train, args=arguments)
    process.start()
    return process, log


def _log(job: Job, places: Places) -> Path:
    return places.runs / f"table-{job.table}" / f"{job.row}-{job.seed}.log"


def _last_line(job: Job, places: Places) -> str:
    lines = _log(job, places).read_text(encoding="utf-8").splitlines()
    return lines[-1] if lines else "no output"


def _train(table: Table, job: Job, places: Places, limits: Limits, log: Path) -> None:
    """Train a row in this process, whose output goes to a file."""
    with log.open("a", encoding="utf-8", buffering=1) as file, contextlib.redirect_stdout(file):
        try:
            raise_on_signals()
            use_threads(limits.threads)
            train_row(table, job.row, job.seed, places, choose_device(limits.device), print)
        except (Interrupted, ValueError, OSError) as error:
            print(error)
            sys.exit(1)
        except Exception:  # of any kind: it belongs to the output of this row
            traceback.print_exc(file=file)
            sys.exit(1)
