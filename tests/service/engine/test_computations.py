"""Tests of computations that take too long, and of those that do not return, with a clock that the tests move."""

import asyncio
import contextlib
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.backend.interruption import Interrupted, interruptible
from service.engine.computations import Computations, ComputationTimeout, ModelStuck

TIMEOUT = 8.0
GRACE = 5.0


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Recorder:
    def __init__(self):
        self.timeouts, self.stuck = 0, []

    def computation_timed_out(self):
        self.timeouts += 1

    def stuck_computations(self, number):
        self.stuck.append(number)


class Run:
    """A graph on a thread, which obeys an interruption or not, and returns once `gate` opens."""

    def __init__(self, obeys):
        self.obeys = obeys
        self.begun, self.gate, self.interrupted = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, value):
        with interruptible(self.stop):
            self.begun.set()
            assert self.gate.wait(60)
            if self.obeys and self.interrupted.is_set():
                raise ArithmeticError("terminate flag")
            return value

    def stop(self):
        self.interrupted.set()
        if self.obeys:
            self.gate.set()


class Bench:
    def __init__(self):
        self.clock, self.recorder, self.ended, self.failed = Clock(), Recorder(), [], 0
        self.computations = Computations(TIMEOUT, self.recorder, model="intents:2", clock=self.clock)
        self.computations.on_stuck = self.note_stuck
        self.pool = ThreadPoolExecutor(4)
        self.awaited = True

    def note_stuck(self):
        assert self.computations.stuck
        self.failed += 1

    async def begin(self, run):
        """Start a run, and return once its thread computes."""
        computing = self.computations.run(self.pool, run, 7, awaited=lambda: self.awaited, on_end=self.ended.append)
        task = asyncio.create_task(computing)
        await asyncio.sleep(0)
        assert await asyncio.to_thread(run.begun.wait, 30)
        self.computations.check()
        return task

    def pass_time(self, seconds):
        """Let the clock go on, checked as often as it is meant to be."""
        for _ in range(round(2 * seconds)):
            self.clock.now += 0.5
            self.computations.check()


def with_bench(scenario, *runs):
    async def run():
        bench = Bench()
        try:
            async with asyncio.timeout(60):
                await scenario(bench, *runs)
        finally:
            for each in runs:
                each.gate.set()
            bench.pool.shutdown()

    asyncio.run(run())


async def returned(bench):
    while bench.computations._running:
        await asyncio.sleep(0.01)


def test_a_result_is_handed_over_and_so_is_an_error():
    async def scenario(bench, run):
        run.gate.set()
        assert await bench.computations.run(bench.pool, run, 7) == 7
        with pytest.raises(ZeroDivisionError):
            await bench.computations.run(bench.pool, lambda: 1 // 0)

    with_bench(scenario, Run(obeys=True))


def test_an_error_does_not_keep_what_its_computation_has_allocated():
    """An error refers to the frames of its traceback: in a cycle, an image would stay until the next collection."""
    kept = []

    class Image:
        pass

    def decode(_):
        image = Image()
        kept.append(weakref.ref(image))
        raise ValueError("it is cut")

    async def scenario(bench):
        with contextlib.suppress(ValueError):
            await bench.computations.run(bench.pool, decode, "image")
        await asyncio.sleep(0)
        assert kept[0]() is None

    gc.disable()
    try:
        with_bench(scenario)
    finally:
        gc.enable()


def test_what_takes_too_long_is_interrupted_and_the_next_one_computes(caplog):
    async def scenario(bench, run):
        task = await bench.begin(run)
        bench.pass_time(TIMEOUT - 0.5)
        assert not run.interrupted.is_set()
        bench.pass_time(0.5)
        with pytest.raises(ComputationTimeout, match=r"for more than 8 seconds \(--computation-timeout\)"):
            await task
        assert (bench.recorder.timeouts, bench.recorder.stuck, bench.failed) == (1, [], 0)
        assert await bench.computations.run(bench.pool, lambda: 3) == 3

    with_bench(scenario, Run(obeys=True))
    assert "intents:2" in caplog.text


def test_what_does_not_return_makes_its_model_stuck_until_it_does():
    async def scenario(bench, run):
        task = await bench.begin(run)
        bench.pass_time(TIMEOUT + GRACE - 0.5)
        assert run.interrupted.is_set()
        assert not bench.computations.stuck
        bench.pass_time(0.5)
        assert bench.computations.stuck
        assert (bench.failed, bench.ended) == (1, [False])
        for refused in (task, bench.computations.run(bench.pool, run, 7)):
            with pytest.raises(ModelStuck):
                await refused
        bench.pass_time(100)
        assert (bench.recorder.timeouts, bench.failed) == (1, 1), "it is told once"
        run.gate.set()
        await returned(bench)
        assert not bench.computations.stuck
        assert (bench.recorder.stuck, bench.ended) == ([1, 0], [False])
        assert await bench.computations.run(bench.pool, lambda: 3) == 3

    with_bench(scenario, Run(obeys=False))


def test_a_model_is_stuck_until_all_have_returned():
    async def scenario(bench, one, other):
        await bench.begin(one)
        await bench.begin(other)
        bench.pass_time(TIMEOUT + GRACE + 1)
        one.gate.set()
        while len(bench.computations._running) > 1:
            await asyncio.sleep(0.01)
        assert bench.computations.stuck
        other.gate.set()
        await returned(bench)
        assert bench.recorder.stuck == [1, 2, 1, 0]

    with_bench(scenario, Run(obeys=False), Run(obeys=False))


def test_what_nobody_awaits_is_interrupted_at_once_and_is_no_timeout():
    async def scenario(bench, run):
        task = await bench.begin(run)
        bench.awaited = False
        bench.pass_time(0.5)
        with pytest.raises(Interrupted):
            await task
        assert (bench.recorder.timeouts, bench.failed) == (0, 0)

    with_bench(scenario, Run(obeys=True))


def test_what_nobody_awaits_and_cannot_be_interrupted_has_until_its_timeout():
    async def scenario(bench, run):
        task = await bench.begin(run)
        bench.awaited = False
        bench.pass_time(TIMEOUT + GRACE - 0.5)
        assert run.interrupted.is_set()
        assert not bench.computations.stuck
        run.gate.set()
        assert await task == 7

    with_bench(scenario, Run(obeys=False))


def test_a_pause_of_the_process_is_no_hang():
    async def scenario(bench, run):
        task = await bench.begin(run)
        bench.clock.now += 24 * 3600
        bench.computations.check()
        bench.pass_time(TIMEOUT - 3)
        assert not run.interrupted.is_set()
        run.gate.set()
        assert await task == 7

    with_bench(scenario, Run(obeys=False))


def test_time_in_the_queue_of_a_pool_does_not_count():
    async def scenario(bench, run):
        bench.pool = ThreadPoolExecutor(1)
        blocking = threading.Event()
        bench.pool.submit(blocking.wait, 60)
        task = asyncio.create_task(bench.computations.run(bench.pool, run, 7))
        await asyncio.sleep(0)
        bench.pass_time(100)
        blocking.set()
        run.gate.set()
        assert await task == 7
        assert bench.recorder.timeouts == 0

    with_bench(scenario, Run(obeys=False))


def test_a_cancelled_call_is_watched_until_its_thread_returns():
    async def scenario(bench, run):
        task = await bench.begin(run)
        task.cancel()
        await asyncio.wait([task])
        assert bench.ended == []
        bench.pass_time(TIMEOUT + GRACE + 1)
        assert bench.computations.stuck
        run.gate.set()
        await returned(bench)
        assert not bench.computations.stuck

    with_bench(scenario, Run(obeys=False))


def test_a_cancelled_call_that_has_not_begun_never_does():
    async def scenario(bench, run):
        bench.pool = ThreadPoolExecutor(1)
        blocking = threading.Event()
        bench.pool.submit(blocking.wait, 60)
        task = asyncio.create_task(bench.computations.run(bench.pool, run, 7, on_end=bench.ended.append))
        await asyncio.sleep(0)
        task.cancel()
        await returned(bench)
        blocking.set()
        assert bench.ended == [True]
        assert not run.begun.is_set()

    with_bench(scenario, Run(obeys=False))


def test_the_watch_checks_again_and_again():
    async def run():
        computations, graph = Computations(0.2), Run(obeys=True)
        watching = asyncio.create_task(computations.watch())
        with ThreadPoolExecutor(1) as pool, pytest.raises(ComputationTimeout):
            await computations.run(pool, graph, 7)
        watching.cancel()

    asyncio.run(run())
