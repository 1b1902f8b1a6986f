"""Counters of API keys: in the memory of a process, or in a file that the processes of one service map."""

import contextlib
import fcntl
import hashlib
import mmap
import os
from collections.abc import Iterator, MutableSequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, cast

from service.engine.quotas import COUNTERS

__all__ = ["Counters", "LocalCounters", "SharedCounters"]

_ROWS = 1 << 14
"""Keys that a file has counters of."""
_DOUBLE = 8
"""Bytes of a number."""


class Counters(Protocol):
    """The counters of each key."""

    process: int
    """Which of the processes this is."""

    def of(self, name: str) -> MutableSequence[float]:
        """Return the counters of a key."""
        ...

    def locked(self) -> AbstractContextManager[object]:
        """Return a context in which no other process changes counters."""
        ...


class LocalCounters:
    """Counters of one process."""

    process = 0

    def __init__(self) -> None:
        self._rows: dict[str, list[float]] = {}

    def of(self, name: str) -> MutableSequence[float]:
        return self._rows.setdefault(name, [0.0] * (COUNTERS + 1))

    def locked(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()


class SharedCounters:
    """Counters in a file, whose rows are a hash table of keys with open addressing; rows are never removed.

    The lock is that of the file, which the system releases where a process ends.
    """

    def __init__(self, path: Path, processes: int, process: int) -> None:
        """Map a file, which the first process makes; the texts that a former process of this number had in progress are
        forgotten."""
        self.process, self._width = process, 1 + COUNTERS + processes
        size = _ROWS * self._width * _DOUBLE
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with self.locked():
            if os.fstat(self._descriptor).st_size < size:
                os.truncate(self._descriptor, size)
        self._bytes = memoryview(mmap.mmap(self._descriptor, size))
        self._numbers = self._bytes.cast("d")
        self._identities = self._bytes.cast("Q")
        self._rows: dict[str, MutableSequence[float]] = {}
        with self.locked():
            own = 1 + COUNTERS + process
            for start in range(0, _ROWS * self._width, self._width):
                if self._identities[start]:
                    self._numbers[start + own] = 0.0

    def of(self, name: str) -> MutableSequence[float]:
        if name not in self._rows:
            with self.locked():
                start = self._find(name)
            self._rows[name] = cast(MutableSequence[float], self._numbers[start + 1 : start + self._width])
        return self._rows[name]

    def _find(self, name: str) -> int:
        """Return where the row of a key begins; raises `MemoryError` where there is no free one."""
        identity = int.from_bytes(hashlib.sha256(name.encode()).digest()[:_DOUBLE], "little") or 1
        for step in range(_ROWS):
            start = (identity + step) % _ROWS * self._width
            if self._identities[start] in (0, identity):
                self._identities[start] = identity
                return start
        raise MemoryError(f"there are counters of {_ROWS} API keys at most")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
