"""Memory of the process: how much there is, and returning freed memory to the operating system.

Memory is returned where glibc is the C library, and measured on Linux; elsewhere nothing is, and no limit is known.
"""

import asyncio
import contextlib
import ctypes
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

__all__ = ["HeapTrimmer", "available_memory", "copy_room", "limit_heap", "private_memory", "trim_heap"]

_M_MMAP_THRESHOLD = -3
"""The parameter of glibc's `mallopt` from whose bytes on a block is mapped on its own and unmapped when it is freed."""
_M_ARENA_MAX = -8
"""The parameter of glibc's `mallopt` that limits arenas."""
_IN_MEMORY = ("tmpfs", "ramfs")
_COPY_SHARE = 0.25
_MAPPED_BYTES = 4 << 20
_ARENAS = 2


def limit_heap() -> None:
    """Make glibc keep little freed memory; call it before threads start, each of which would keep an arena.

    Left to itself, glibc raises the size from which blocks are mapped to 32 MB, once such blocks were freed; at the
    start of the service with the bundled models 50 MB more remain in use then.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, _ARENAS)
        library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)


def trim_heap() -> None:
    """Return freed memory; without it glibc keeps much of that for later.

    It takes some 0.1 ms for each MB that is returned, outside the GIL. Threads of the same arena, which may be that of
    the event loop, wait meanwhile where they allocate more than 512 bytes at once.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def private_memory(pid: int, root: Path = Path("/")) -> int:
    """Return the bytes of memory that a process has taken; 0 where it is not known.

    Files that it maps count where they are in memory themselves (tmpfs), and do not where they are on a disk.
    """
    return sum(_fields(root / "proc" / str(pid) / "status", ("RssAnon:", "RssShmem:")).values()) << 10


def available_memory(root: Path = Path("/")) -> float:
    """Return the bytes that may be taken before the machine or a control group runs out; infinity where no limit is.

    The cache of files, which the kernel gives up for them, counts as available. `root` is where `/proc` and `/sys` are.
    """
    free = _fields(root / "proc" / "meminfo", ("MemAvailable:",)).get("MemAvailable:")
    return min([math.inf if free is None else free << 10, *_left_in_groups(root)])


def copy_room(directory: Path, root: Path = Path("/")) -> float:
    """Return the bytes that a copy of a file may take in a directory, apart from the room that its file system has.

    Where that is memory (tmpfs), a copy cannot be given up for something else, as files in the cache can: then it is a
    quarter of the memory that is available.
    """
    with contextlib.suppress(OSError, ValueError):
        device = directory.stat().st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        for line in (root / "proc" / "self" / "mountinfo").read_text(errors="replace").splitlines():
            fields = line.split()
            if fields[2] == number and fields[fields.index("-") + 1] in _IN_MEMORY:
                return _COPY_SHARE * available_memory(root)
    return math.inf


def _left_in_groups(root: Path) -> Iterator[float]:
    """Yield what each control group of the process has left, and its parents: version 2, or memory of version 1."""
    groups = root / "sys" / "fs" / "cgroup"
    with contextlib.suppress(OSError):
        for line in (root / "proc" / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            own = PurePosixPath(path.lstrip("/"))
            for group in (own, *own.parents):
                if not controllers:
                    yield _left(groups / group, "memory.max", "memory.current", "")
                elif "memory" in controllers.split(","):
                    names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
                    yield _left(groups / "memory" / group, *names)


def _left(group: Path, limit: str, usage: str, prefix: str) -> float:
    try:
        left = int((group / limit).read_text()) - int((group / usage).read_text())
    except (OSError, ValueError):  # no such group, or no limit: "max"
        return math.inf
    return left + sum(_fields(group / "memory.stat", (f"{prefix}inactive_file", f"{prefix}active_file")).values())


def _fields(file: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Return the numbers of lines that begin with one of the names."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in file.read_text(encoding="ascii", errors="replace").splitlines():
            name, *values = line.split()[:2] or [""]
            if name in names and values:
                found[name] = int(values[0])
    return found


class HeapTrimmer:
    """Trims the heap some time after the last request, on a thread of its own. Use from one event loop.

    By then the memory of a large request is freed, and requests that follow each other are worth one run. Under steady
    load, where there is no pause between them, it runs all the same, so that memory returns within seconds.
    """

    def __init__(self, delay: float = 1.0, longest_wait: float = 3.0) -> None:
        """`delay` in seconds after the last request, and at least between two runs; `longest_wait` after the first."""
        self._delay, self._longest_wait = delay, longest_wait
        self._latest = 0.0
        self._thread = ThreadPoolExecutor(1, "softserve-trim")
        self._running: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Ask for the heap to be trimmed. Costs next to nothing; does not wait."""
        self._latest = asyncio.get_running_loop().time()
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Cancel a pending trim and end the thread."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        loop, trimmed = asyncio.get_running_loop(), -math.inf
        try:
            while self._latest >= trimmed:
                await self._settle(loop)
                trimmed = loop.time()
                await loop.run_in_executor(self._thread, trim_heap)
        finally:
            self._running = None

    async def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Return when there was no request for a while, or the first was long ago."""
        latest_end = loop.time() + self._longest_wait
        while (wait := min(self._latest + self._delay, latest_end) - loop.time()) > 0:
            await asyncio.sleep(wait)
