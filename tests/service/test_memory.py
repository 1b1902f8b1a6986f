import asyncio
import ctypes
import itertools
import math
import os
import sys
import threading
import time

import pytest

from service.engine import memory


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [(memory.limit_heap, "mallopt", [(-8, 2), (-3, 4 << 20)]), (memory.trim_heap, "malloc_trim", [(0,)])],
)
def test_glibc_is_asked(monkeypatch, call, name, arguments):
    asked = []
    library = type("Library", (), {name: staticmethod(lambda *given: asked.append(given))})
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    call()
    assert asked == arguments


@pytest.mark.parametrize("call", [memory.limit_heap, memory.trim_heap])
def test_other_c_libraries_are_left_alone(monkeypatch, call):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    call()
    memory.trim_heap()


# ---- trimming when it was asked for ----


def trimmed(monkeypatch, scenario, **settings):
    """When the heap was trimmed in a scenario, in seconds since its start."""
    times, threads = [], set()

    def note():
        times.append(time.monotonic() - started)
        threads.add(threading.current_thread().name)

    monkeypatch.setattr(memory, "trim_heap", note)

    async def run():
        trimmer = memory.HeapTrimmer(**settings)
        await scenario(trimmer)
        await trimmer.stop()

    started = time.monotonic()
    asyncio.run(run())
    assert threads <= {"softserve-trim_0"}
    return times


def test_the_heap_is_trimmed_a_while_after_the_last_request(monkeypatch):
    async def scenario(trimmer):
        for _ in range(4):
            trimmer.request()
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.5)

    (when,) = trimmed(monkeypatch, scenario, delay=1.0, longest_wait=9.0)
    assert when > 1.1, "a delay after the last request, not after the first"


def test_it_is_not_trimmed_where_it_is_not_asked_for(monkeypatch):
    assert trimmed(monkeypatch, lambda trimmer: asyncio.sleep(0.3), delay=0.05) == []


def test_under_steady_load_it_is_trimmed_now_and_then(monkeypatch):
    async def scenario(trimmer):
        for _ in range(50):
            trimmer.request()
            await asyncio.sleep(0.02)

    times = trimmed(monkeypatch, scenario, delay=0.1, longest_wait=0.3)
    assert 2 <= len(times) <= 4
    assert all(later - earlier >= 0.1 for earlier, later in itertools.pairwise(times))


def test_a_request_while_it_is_trimmed_is_answered_later(monkeypatch):
    async def scenario(trimmer):
        trimmer.request()
        await asyncio.sleep(0.2)
        trimmer.request()
        await asyncio.sleep(0.4)

    first, second = trimmed(monkeypatch, scenario, delay=0.1, longest_wait=1.0)
    assert second - first >= 0.1


def test_what_was_asked_for_is_forgotten_at_the_end(monkeypatch):
    async def scenario(trimmer):
        trimmer.request()
        await trimmer.stop()
        await asyncio.sleep(0.2)

    assert trimmed(monkeypatch, scenario, delay=0.05) == []


def test_defaults_return_memory_within_5_seconds():
    trimmer = memory.HeapTrimmer()
    assert trimmer._delay == 1.0
    assert trimmer._delay <= trimmer._longest_wait < 4.0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_returns_to_the_system():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    async def run():
        blocks = [bytes(100_000) for _ in range(1000)]
        kept, full = bytes(100_000), resident()  # above the blocks, so that the heap does not shrink by itself
        del blocks
        trimmer = memory.HeapTrimmer(delay=0.05)
        trimmer.request()
        await asyncio.sleep(0.5)
        await trimmer.stop()
        return full - resident(), kept

    freed, _ = asyncio.run(run())
    assert freed > 50_000_000


# ---- how much there is ----

KB, MB = 1 << 10, 1 << 20


@pytest.fixture
def machine(tmp_path):
    """Writes files of a machine; returns its root."""

    def make(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


MEMINFO = {"proc/meminfo": "MemTotal:       24684308 kB\nMemAvailable:   1000000 kB\n"}
V2, V1 = {"proc/self/cgroup": "0::/a/b\n"}, {"proc/self/cgroup": "5:cpu:/\n9:memory:/a\n"}


def group(path, limit, used, inactive=0, active=0):
    return {
        f"sys/fs/cgroup/{path}memory.max": f"{limit}\n",
        f"sys/fs/cgroup/{path}memory.current": f"{used}\n",
        f"sys/fs/cgroup/{path}memory.stat": f"anon 7\ninactive_file {inactive}\nactive_file {active}\n",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, math.inf),
        (MEMINFO, 1000000 * KB),
        ({**MEMINFO, **V2}, 1000000 * KB),
        ({**MEMINFO, **V2, **group("a/b/", "max", 5)}, 1000000 * KB),
        ({**MEMINFO, **V2, **group("a/b/", 500 * MB, 200 * MB)}, 300 * MB),
        ({**MEMINFO, **V2, **group("a/b/", 500 * MB, 480 * MB, 100 * MB, 50 * MB)}, 170 * MB),
        ({**MEMINFO, **V2, **group("a/b/", 500 * MB, 200 * MB), **group("a/", 400 * MB, 390 * MB)}, 10 * MB),
        ({**V2, **group("", 400 * MB, 100 * MB)}, 300 * MB),
    ],
)
def test_what_is_available_is_the_least_of_machine_and_groups(machine, files, expected):
    assert memory.available_memory(machine(files)) == expected


def test_groups_of_version_1_have_limits_too(machine):
    root = machine(
        {
            **MEMINFO,
            **V1,
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": str(300 * MB),
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": str(250 * MB),
            "sys/fs/cgroup/memory/a/memory.stat": f"total_inactive_file {30 * MB}\ninactive_file 1\n",
        }
    )
    assert memory.available_memory(root) == 80 * MB


@pytest.mark.parametrize(("kind", "expected"), [("tmpfs", 20 * MB), ("ext4", math.inf)])
def test_a_copy_in_memory_may_take_a_part_of_it(machine, tmp_path, kind, expected):
    device = tmp_path.stat().st_dev
    mounts = (
        "21 1 0:19 / /sys rw - sysfs sysfs rw\n"
        f"30 1 {os.major(device)}:{os.minor(device)} / /tmp rw,nosuid shared:3 - {kind} none rw\n"
    )
    root = machine({"proc/meminfo": f"MemAvailable: {80 * KB} kB\n", "proc/self/mountinfo": mounts})
    assert memory.copy_room(tmp_path, root) == expected
    assert memory.copy_room(tmp_path / "nowhere", root) == math.inf


def test_memory_of_a_process_does_not_count_the_files_that_it_maps(machine):
    status = "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t 500 kB\nRssFile:\t 300 kB\nRssShmem:\t 100 kB\n"
    root = machine({"proc/7/status": status})
    assert memory.private_memory(7, root) == 600 * KB
    assert memory.private_memory(8, root) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_memory_of_this_process_grows_with_what_it_takes():
    before = memory.private_memory(os.getpid())
    taken = bytearray(b"x") * (64 * MB)
    assert memory.private_memory(os.getpid()) - before > 60 * MB
    del taken
    assert 0 < memory.available_memory() < math.inf
