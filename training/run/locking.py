"""Locks on files, which end with the process that holds them."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import IO

__all__ = ["EXCLUSIVE_NOW", "lock", "only_session"]

EXCLUSIVE_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
"""Lock alone, or raise `BlockingIOError`."""


def lock(path: Path, operation: int) -> IO[str]:
    """Return a file with a lock on it, which ends where the file is closed; raises `BlockingIOError`."""
    file = path.open("w")
    try:
        fcntl.flock(file, operation)
    except BaseException:
        file.close()
        raise
    return file


@contextlib.contextmanager
def only_session(directory: Path) -> Iterator[None]:
    """Be the only process that trains in a run directory; raises `ValueError` where another one does.

    The lock is a file next to the directory, which may be removed and made anew.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    path = directory.with_name(f".{directory.name}.lock")
    try:
        file = lock(path, EXCLUSIVE_NOW)
    except BlockingIOError as error:
        raise ValueError(f"another process trains in {directory}") from error
    with file:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
