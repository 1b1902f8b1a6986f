"""Tests of short computations on the thread of the event loop."""

import asyncio
import contextlib
import threading
import time

import pytest

from models.backend.interruption import Interrupted, interruptible
from service.engine.batcher import DeadlineExceeded, Stopped
from service.engine.cost_model import CostModel, Sample
from service.engine.inline import Inline
from tests.service.engine.doubling import Bench, Double, values

FAST = CostModel([Sample(1, 1, 0.001), Sample(8, 1, 0.002)])
SLOW = CostModel([Sample(1, 1, 0.1), Sample(8, 1, 0.2)])


def run_graph(seconds):
    """A run of a graph that ends where it is interrupted."""
    stopped = threading.Event()
    with interruptible(stopped.set):
        if stopped.wait(seconds):
            raise RuntimeError("terminated")


class Slow(Double):
    def __call__(self, queries):
        if threading.current_thread() is threading.main_thread():
            run_graph(10)
        return super().__call__(queries)


@contextlib.contextmanager
def inline(alone=True):
    made = Inline()
    made.alone = lambda: alone
    try:
        yield made
    finally:
        made.close()


def with_inline(scenario, cost=FAST, alone=True, double=None, **changes):
    async def run():
        with inline(alone) as made:
            bench = Bench(costs=[{"double": cost, "fail": cost}], inline=made, **changes)
            if double is not None:
                bench.double = bench.batcher._replicas[0].functions["double"] = double
            bench.batcher.start()
            try:
                async with asyncio.timeout(6):
                    await scenario(bench)
            finally:
                bench.double.gate.set()
                await bench.batcher.stop()

    asyncio.run(run())


def test_a_batch_is_computed_on_the_thread_of_the_event_loop_and_counted():
    async def scenario(bench):
        assert await values(bench.submit(1, 2, length=3)) == [2, 4]
        assert bench.double.threads == {threading.get_ident()}
        ((lengths, waits, seconds),) = bench.recorder.batches
        assert (lengths, bench.batcher.admitted) == ([3, 3], 2)
        assert all(0 <= wait < 1 for wait in waits)
        assert 0 <= seconds < 1

    with_inline(scenario)


@pytest.mark.parametrize("case", ["slow", "not alone", "not measured", "many"])
def test_other_batches_are_computed_on_threads(case):
    async def scenario(bench):
        count = 9 if case == "many" else 1
        assert await values(bench.submit(*range(count))) == [2 * value for value in range(count)]
        assert threading.get_ident() not in bench.double.threads

    cost = {"slow": SLOW, "not measured": CostModel()}.get(case, FAST)
    with_inline(scenario, cost=cost, alone=case != "not alone")


def test_nothing_overtakes_what_is_computed_or_waits():
    async def scenario(bench):
        bench.batcher._inline.alone = lambda: False
        blocked = await bench.block()
        bench.batcher._inline.alone = lambda: True
        task = bench.submit(1)
        await asyncio.sleep(0.02)
        assert not task.done()
        bench.double.gate.set()
        assert [await values(each) for each in (blocked, task)] == [[0], [2]]
        assert threading.get_ident() not in bench.double.threads

    with_inline(scenario)


def test_what_takes_long_is_interrupted_and_computed_on_a_thread():
    async def scenario(bench):
        started = time.monotonic()
        assert await values(bench.submit(3)) == [6]
        assert time.monotonic() - started < 2
        assert bench.double.threads
        assert threading.get_ident() not in bench.double.threads
        assert bench.batcher.admitted == 1
        assert await values(bench.submit(4)) == [8], "on a thread at once for a while"
        assert len(bench.recorder.batches) == 2

    with_inline(scenario, double=Slow())


def test_errors_and_refusals_are_those_of_other_batches():
    async def scenario(bench):
        with pytest.raises(ArithmeticError):
            await bench.submit(1, operation="fail")
        assert await values(bench.submit(1)) == [2]
        with pytest.raises(DeadlineExceeded):
            await bench.submit(1, seconds=-1)
        assert bench.recorder.rejections == [("expired", 1)] or bench.recorder.rejections == [("short_deadline", 1)]
        await bench.batcher.stop()
        with pytest.raises(Stopped):
            await bench.submit(1)

    with_inline(scenario)


def test_a_computation_after_a_long_pause_is_watched():
    with inline() as made:
        assert made.call(lambda: 1) == 1
        time.sleep(1.3)
        assert not made._awake.is_set()
        started = time.monotonic()
        with pytest.raises(Interrupted):
            made.call(run_graph, 10)
        assert time.monotonic() - started < 2
