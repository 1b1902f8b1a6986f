"""Threads that compute have a lower priority, and no others (Linux)."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.engine.loading import Loader
from service.engine.priority import lower_thread_priority
from service.engine.resources import Resources
from service.engine.served_models import ServedModels
from service.observability.metrics import Metrics
from service.settings import Settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux only")


def niceness():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_gets_a_lower_priority_and_its_starter_keeps_its_own():
    before = niceness()
    with ThreadPoolExecutor(1, initializer=lower_thread_priority) as pool:
        assert pool.submit(niceness).result() == min(before + 5, 19)
    assert niceness() == before


def test_threads_that_it_starts_inherit_it():
    def start():
        found = []
        thread = threading.Thread(target=lambda: found.append(niceness()))
        thread.start()
        thread.join()
        return found

    with ThreadPoolExecutor(1, initializer=lower_thread_priority) as pool:
        assert pool.submit(start).result() == [min(niceness() + 5, 19)]


@pytest.mark.parametrize(("process", "thread"), [(10, 15), (17, 19), (19, 19)])
def test_threads_yield_to_the_event_loop_whatever_the_process_was_started_with(process, thread):
    """As by a service manager; to lower a niceness again would need a privilege."""
    code = (
        "import os, sys, threading; from concurrent.futures import ThreadPoolExecutor as Pool\n"
        "from service.engine.priority import lower_thread_priority\n"
        "def niceness(): return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())\n"
        f"os.nice({process} - os.nice(0))\n"
        "with Pool(1, initializer=lower_thread_priority) as pool: print(pool.submit(niceness).result(), niceness())"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert finished.stdout.split() == [str(thread), str(process)], finished.stderr


def test_a_greater_niceness_stays(monkeypatch):
    monkeypatch.setattr(os, "getpriority", lambda _, thread: 0 if thread == os.getpid() else 12)
    monkeypatch.setattr(os, "setpriority", lambda *_: pytest.fail("a priority was changed"))
    with ThreadPoolExecutor(1, initializer=lower_thread_priority) as pool:
        pool.submit(int).result()


@pytest.mark.parametrize("call", ["getpriority", "setpriority"])
def test_a_system_that_refuses_is_left_alone(monkeypatch, call):
    def refuse(*_):
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    monkeypatch.setattr(os, call, refuse)
    lower_thread_priority()


def test_models_load_on_a_thread_of_their_own(monkeypatch):
    """Threads of `asyncio.to_thread` also decode and tokenize requests, and keep their priority."""
    found = {}
    load = Loader._verified

    def record(loader, *paths):
        found["loading"] = (threading.current_thread().name, niceness())
        return load(loader, *paths)

    monkeypatch.setattr(Loader, "_verified", record)

    async def run():
        registry = ServedModels(Settings(threads=1, models=("next-word:4",)), Metrics())
        await registry.load()
        found["others"] = {await asyncio.to_thread(niceness) for _ in range(8)}
        await registry.stop()

    before = niceness()
    asyncio.run(run())
    assert found["loading"] == ("softserve-load_0", min(before + 5, 19))
    assert found["others"] == {before}


def test_a_model_in_the_background_has_the_lowest_priority():
    async def run():
        settings = Settings(threads=1, models=("next-word:4",), parallel_batches=1)
        resources = Resources(settings)
        loader = Loader(settings, Metrics(), resources)
        served = await loader.load(*loader.configured(), background=True)
        found = await asyncio.wrap_future(served.batcher._thread.submit(niceness))
        await served.drain()
        loader.close()
        resources.close()
        return found, loader.busy

    assert asyncio.run(run()) == (19, False)
