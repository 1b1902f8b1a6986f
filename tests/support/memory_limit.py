"""Memory cgroups (version 1 and 2) that limit and measure the memory of a server and its children.

`RLIMIT_AS` counts address space, of which onnxruntime and glibc reserve far more than they touch, so it cannot stand in
for a cgroup. Where no cgroup can be made, `MemoryWatch` samples the resident memory, to be compared afterwards.
"""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["MEGABYTE", "MemoryGroup", "MemoryWatch", "reset_peak", "resident", "resident_peak", "status_field"]

MEGABYTE = 1 << 20
_ROOT = Path("/sys/fs/cgroup")
_JOIN = 'echo $$ > "$0" && exec "$@"'
"""A shell that enters the cgroup before it becomes the server, so that all of the server's memory is charged to it."""
_SAMPLE_SECONDS = 0.02
_numbers = itertools.count()


class MemoryGroup:
    """A memory cgroup with a limit; `close` removes it."""

    def __init__(self, path: Path, version: int) -> None:
        self._path = path
        self.version = version

    @classmethod
    def create(cls, megabytes: int) -> "MemoryGroup | None":
        """Return a new cgroup with this limit and no swap, or None where none can be made."""
        name = f"softserve-{os.getpid()}-{next(_numbers)}"
        for version, parent in ((1, _ROOT / "memory"), (2, _ROOT)):
            group = cls(parent / name, version)
            try:
                if version == 2:
                    group._enable_controller()
                group._path.mkdir()
            except OSError:
                continue
            try:
                group._limit(megabytes * MEGABYTE)
            except OSError:
                group.close()
                continue
            return group
        return None

    def joining(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs another inside the cgroup, under the same process id."""
        return ["/bin/sh", "-c", _JOIN, str(self._path / "cgroup.procs"), *command]

    @property
    def usage(self) -> int:
        """Return the bytes charged now, the page cache included."""
        return self._number("memory.usage_in_bytes", "memory.current")

    @property
    def hits(self) -> int:
        """Return how often the limit was reached, whether or not reclaiming the page cache then sufficed."""
        if self.version == 1:  # with a limit of swap too, that one may be reached first
            return self._number("memory.failcnt", "") + self._number("memory.memsw.failcnt", "")
        return self._event("memory.events", "max")

    @property
    def kills(self) -> int:
        """Return the number of processes killed for lack of memory."""
        return self._event("memory.oom_control" if self.version == 1 else "memory.events", "oom_kill")

    def close(self) -> None:
        """Remove the cgroup, once the processes in it have ended."""
        for _ in range(100):
            with contextlib.suppress(OSError):
                self._path.rmdir()
            if not self._path.exists():
                return
            time.sleep(0.02)

    def _enable_controller(self) -> None:
        controllers = (_ROOT / "cgroup.controllers").read_text(encoding="ascii").split()
        if "memory" not in controllers:
            raise FileNotFoundError("no memory controller")
        if "memory" not in (_ROOT / "cgroup.subtree_control").read_text(encoding="ascii").split():
            (_ROOT / "cgroup.subtree_control").write_text("+memory", encoding="ascii")

    def _limit(self, size: int) -> None:
        if self.version == 2:
            self._write("memory.max", size)
            with contextlib.suppress(OSError):
                self._write("memory.swap.max", 0)
            return
        self._write("memory.limit_in_bytes", size)
        with contextlib.suppress(OSError):  # a kernel without accounting of swap
            self._write("memory.memsw.limit_in_bytes", size)

    def _write(self, name: str, value: int) -> None:
        if not (self._path / name).exists():
            raise FileNotFoundError(name)
        (self._path / name).write_text(str(value), encoding="ascii")

    def _number(self, first: str, second: str) -> int:
        try:
            return int((self._path / (first if self.version == 1 else second)).read_text(encoding="ascii"))
        except OSError:  # a kernel without accounting of swap
            return 0

    def _event(self, name: str, event: str) -> int:
        lines = (self._path / name).read_text(encoding="ascii").splitlines()
        return next((int(line.split()[1]) for line in lines if line.split()[0] == event), 0)


class MemoryWatch:
    """A thread that samples the resident memory of a process and its children, and keeps the maximum."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self.peak = 0.0
        """Peak of the sampled memory, in megabytes."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, resident(self._pid))


def resident(pid: int) -> float:
    """Return the resident memory of a process and its children in megabytes (VmRSS); 0 after they ended."""
    return sum(status_field(each, "VmRSS") for each in _family(pid))


def resident_peak(pid: int) -> float:
    """Return the sum of the peak resident memory of the process and its children in megabytes (VmHWM)."""
    return sum(status_field(each, "VmHWM") for each in _family(pid))


def reset_peak(pid: int) -> None:
    """Reset `resident_peak` (proc(5), clear_refs)."""
    for each in _family(pid):
        with contextlib.suppress(OSError):
            Path(f"/proc/{each}/clear_refs").write_text("5", encoding="ascii")


def status_field(pid: int, field: str) -> float:
    """Return a field of `/proc/PID/status` in megabytes; 0 after the process ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), 0.0)


def _family(pid: int) -> Iterator[int]:
    """Return the process and its descendants."""
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [child for thread in threads for child in (thread / "children").read_text(encoding="ascii").split()]
    except OSError:
        return
    for child in children:
        yield from _family(int(child))
