"""The process that tries a bundle before the service loads it: `python -m service.engine.trial_process`.

It reads a `Trial` from its standard input, as one line of JSON, and writes a `TrialOutcome` to its standard output. It
ends with the process that started it, whose end of the standard input is closed then.
"""

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from models.errors import BundleError, UnsupportedDeviceError
from models.private_copy import verified_copy
from models.reading import verify
from models.signing import TrustedKey
from models.store import bundle_errors
from service.engine.memory import copy_room
from service.engine.priority import lower_thread_priority
from service.engine.replicas import ReplicaOptions, load_replicas

__all__ = ["Trial", "TrialOutcome", "main", "run"]

_MAX_PROBLEMS, _MAX_CHARACTERS = 16, 500


class Trial(BaseModel):
    """What to load, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: Path
    directory: Path | None
    """Private directory for a copy of its files."""
    modules: tuple[str, ...]
    """Modules to import first, which register tasks."""
    options: ReplicaOptions
    trusted_key: TrustedKey | None = None
    """The key that must have signed it; none where it need not be signed."""


class TrialOutcome(BaseModel):
    """The result: the directory of the files that were loaded, or an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path | None = None
    error: Literal["bundle", "device"] | None = None
    problems: tuple[str, ...] = ()


def run(trial: Trial) -> TrialOutcome:
    """Check, load and warm up a bundle."""
    try:
        with bundle_errors(trial.bundle, "it cannot be read"):
            if trial.options.map_weights:
                bundle = verify(trial.bundle)
            else:
                room = copy_room(trial.directory) if trial.directory else 0
                bundle = verified_copy(
                    trial.bundle,
                    trial.directory,
                    backend=trial.options.backend,
                    max_bytes=room,
                    trusted_key=trial.trusted_key,
                )
        load_replicas(bundle, trial.options)
    except UnsupportedDeviceError as error:
        return TrialOutcome(error="device", problems=_shortened([str(error)]))
    except BundleError as error:
        return TrialOutcome(error="bundle", problems=_shortened(error.problems))
    return TrialOutcome(path=bundle.path)


def _shortened(problems: Sequence[str]) -> tuple[str, ...]:
    """Return problems of which an outcome is never larger than a pipe, from which the parent reads at the end."""
    return tuple(problem[:_MAX_CHARACTERS] for problem in problems[:_MAX_PROBLEMS])


def main() -> None:
    """Run the trial of the standard input."""
    trial = Trial.model_validate_json(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _be_ended_first()
    lower_thread_priority()
    answer = os.dup(1)
    os.dup2(2, 1)  # libraries may print
    for module in trial.modules:
        with contextlib.suppress(ImportError):  # one of a script
            importlib.import_module(module)
    with os.fdopen(answer, "wb") as output:
        output.write(run(trial).model_dump_json().encode())
    os._exit(0)  # at once, whatever threads still run


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _be_ended_first() -> None:
    """Let the kernel kill this process rather than the service where memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    main()
