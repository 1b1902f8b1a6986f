"""An executor whose threads do not keep the process from ending."""

import asyncio
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import Future
from pathlib import Path

import pytest

from service.engine.daemon_executor import DaemonExecutor

ROOT = Path(__file__).parents[3]


def test_functions_are_called_in_order_on_one_thread():
    threads = []
    with DaemonExecutor(1, "x") as executor:
        found = list(executor.map(lambda n: threads.append(threading.current_thread().name) or 2 * n, range(5)))
    assert found == [0, 2, 4, 6, 8]
    assert set(threads) == {"x_0"}


def test_several_threads_work_at_once():
    barrier = threading.Barrier(3)
    with DaemonExecutor(3, "x") as executor:
        assert sorted(executor.map(lambda _: barrier.wait(20), range(3))) == [0, 1, 2]


def test_threads_are_initialized():
    started = []
    with DaemonExecutor(2, "x", initializer=lambda: started.append(None)) as executor:
        assert executor.submit(int).result(20) == 0
    assert started


@pytest.mark.parametrize("error", [ValueError("x"), BaseException("a panic")])
def test_errors_are_those_of_the_result_and_the_thread_goes_on(error):
    def fail():
        raise error

    with DaemonExecutor(1, "x") as executor:
        assert executor.submit(fail).exception(20) is error
        assert executor.submit(len, "abc").result(20) == 3


def test_a_thread_keeps_no_result():
    class Large:
        pass

    with DaemonExecutor(1, "x") as executor:
        future = executor.submit(Large)
        result = weakref.ref(future.result(20))
        del future
        until = time.monotonic() + 20
        while result() is not None and time.monotonic() < until:
            time.sleep(0.01)
        assert result() is None


def test_shutting_down_waits_for_no_call_and_cancels_the_others():
    entered, released = threading.Event(), threading.Event()

    def hang():
        entered.set()
        assert released.wait(20)
        return 1

    executor = DaemonExecutor(1, "x")
    running, waiting = executor.submit(hang), executor.submit(int)
    assert entered.wait(20)
    executor.shutdown(cancel_futures=True)
    assert waiting.cancelled()
    assert executor.active == {running}
    with pytest.raises(RuntimeError):
        executor.submit(int)
    released.set()
    assert running.result(20) == 1


def test_a_cancelled_call_is_not_made():
    entered, released = threading.Event(), threading.Event()
    with DaemonExecutor(1, "x") as executor:
        executor.submit(lambda: entered.set() or released.wait(20))
        assert entered.wait(20)
        waiting: Future[int] = executor.submit(int)
        assert waiting.cancel()
        released.set()
        assert executor.submit(len, "ab").result(20) == 2


def test_an_event_loop_can_use_it():
    async def run():
        with DaemonExecutor(1, "x") as executor:
            return await asyncio.get_running_loop().run_in_executor(executor, len, "abc")

    assert asyncio.run(run()) == 3


def test_a_call_that_never_returns_does_not_keep_the_process():
    code = """
import threading
from service.engine.daemon_executor import DaemonExecutor
entered = threading.Event()
DaemonExecutor(1, "x").submit(lambda: entered.set() or threading.Event().wait())
assert entered.wait(20)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0
