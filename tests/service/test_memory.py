import asyncio
import ctypes
import itertools
import sys
import threading
import time

import pytest

from service import memory


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
        await asyncio.sleep(0.5)

    (when,) = trimmed(monkeypatch, scenario, delay=0.2, longest_wait=1.0)
    assert 0.3 < when < 0.6


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
