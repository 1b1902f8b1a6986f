"""The parts of a run: each a process, whose share of the time is bounded, and whose end is not that of the run."""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benchmarks.gpu.results import Context, Result, Results

__all__ = ["PARTS", "PART_ROW", "run_parts"]

PART_ROW = "part"
"""Row of a part whose process ended with an error, or did not end."""
_GRACE, _SMALL_GRACE = 60.0, 30.0
"""Seconds after its deadline in which a part must end the row that it measures."""
_STOP_SECONDS = 20.0
_IMPORTED = ("onnxruntime", "torch", "transformers", "benchmarks.gpu.made_models", "benchmarks.gpu.over_http")
"""What the process that starts parts has imported."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the run: its module in this package, and its share of the time."""

    module: str
    share: float
    needs_models: bool = True
    """Whether it measures models that are made first."""


PARTS: Mapping[str, Part] = {
    "tests": Part("device_tests", 1.5, needs_models=False),
    "losses": Part("losses", 0.3, needs_models=False),
    "training": Part("training", 0.5, needs_models=False),
    "http": Part("over_http", 4.0),
    "process": Part("in_process", 1.2),
    "peers": Part("peers", 2.0),
    "servers": Part("peer_servers", 1.0),
    "steps": Part("steps", 0.6),
    "costs": Part("costs", 0.4),
}
"""All parts, in the order in which they run: models are made by another process during the first three."""


def run_parts(names: Sequence[str], results: Results, *, device: str, small: bool, work: Path, minutes: float) -> None:
    """Run parts one after the other; what one leaves of its share goes to the others."""
    end = time.monotonic() + 60 * minutes
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_IMPORTED])
    making = context.Process(target=_in_session, args=(_make, work, small), name="models")
    if any(PARTS[name].needs_models for name in names):
        making.start()
    for index, name in enumerate(names):
        if PARTS[name].needs_models:
            making.join(max(0.0, end - time.monotonic()))
        share = PARTS[name].share / sum(PARTS[each].share for each in names[index:])
        deadline = time.monotonic() + share * max(0.0, end - time.monotonic())
        given = Context(part=name, device=device, small=small, work=work, results=results, deadline=deadline)
        _run(context.Process(target=_in_session, args=(_measure, given), name=name), given)
    _end(making)


def _make(work: Path, small: bool) -> None:
    from benchmarks.gpu.made_models import make_models
    from benchmarks.gpu.subjects import SUBJECTS

    names = [each.name for each in SUBJECTS if each.made and (each.in_small or not small)]
    for name, error in make_models(work, names, small=small).items():
        print(f"{name} was not made: {error}", file=sys.stderr, flush=True)


def _measure(context: Context) -> None:
    importlib.import_module(f"benchmarks.gpu.{PARTS[context.part].module}").run(context)


def _in_session(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function in a session of its own, so that all of its processes can be ended."""
    os.setsid()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # servers are stopped
    try:
        function(*arguments)
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def _run(process: BaseProcess, context: Context) -> None:
    """Run the process of a part; add a row where it fails or does not end, and replace that of an earlier run."""
    process.start()
    process.join(max(0.0, context.deadline - time.monotonic()) + (_SMALL_GRACE if context.small else _GRACE))
    late = process.is_alive()
    _end(process)
    result = Result(part=context.part, row=PART_ROW, status="measured")
    if late or process.exitcode:
        reason = "it did not end in time" if late else f"its process ended with status {process.exitcode}"
        result = Result(part=context.part, row=PART_ROW, status="failed", reason=reason)
        print(f"{context.part}: {reason}", flush=True)
    known = context.results.read().get((context.part, PART_ROW))
    if result.status == "failed" or known is not None:
        context.results.add(result)


def _end(process: BaseProcess) -> None:
    """End a process, if it was started, and all that it has started."""
    if process.pid is None:
        return
    if process.is_alive():
        process.terminate()
        process.join(_STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # none is left
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
