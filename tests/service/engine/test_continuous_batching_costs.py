"""Tests of the costs of continuous batching, recorded and expected, and of which sequences decode together."""

import asyncio
import math
import time
from types import SimpleNamespace

import pytest

from service.engine.batcher import DeadlineExceeded
from service.engine.continuous_batching import ContinuousBatcher
from service.engine.cost_model import CostModel, Terms
from tests.service.engine.test_continuous_batching import FOREVER, HANGS, Bench, Kitchen, is_served, with_bench

ONE_ITEM = 64
"""Result tokens whose cost is that of a source token."""


@pytest.mark.parametrize(
    ("steps", "seconds", "error"),
    [(1, 60.0, None), (0, 60.0, ArithmeticError), (FOREVER, 60.0, asyncio.CancelledError), (1, 0.5, DeadlineExceeded)],
    ids=["success", "error", "cancellation", "expiry"],
)
def test_a_sequence_that_has_ended_is_no_longer_waited_for(steps, seconds, error):
    async def scenario(bench):
        bench.batcher._drain.record(1, 1.0)
        task = await bench.hold(steps, seconds=seconds, length=5, max_tokens=ONE_ITEM)
        assert bench.batcher.expected_wait == 3.0  # 5 source tokens and a result's, half of the work of the usual beam
        if error is asyncio.CancelledError:
            task.cancel()
        if error is not DeadlineExceeded:
            bench.kitchen.gate.set()
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(answer, error or tuple)
        bench.kitchen.gate.set()
        assert await is_served(bench)
        await bench.batcher.stop()
        assert bench.batcher.expected_wait == 0.0

    with_bench(scenario)


def test_devices_that_decode_at_the_same_time_share_the_seconds_that_are_recorded(monkeypatch):
    bench, kitchens, drained = Bench(), [Kitchen(), Kitchen()], []
    started = math.ceil(time.monotonic())
    clock = SimpleNamespace(now=started)
    monkeypatch.setattr("service.engine.continuous_batching.time", SimpleNamespace(monotonic=lambda: clock.now))

    async def run():
        limits = bench.batcher.limits
        bench.batcher = ContinuousBatcher([kitchen.start for kitchen in kitchens], limits, bench.recorder)
        bench.batcher._drain.record = lambda *recorded: drained.append(recorded)
        bench.batcher.start()
        for kitchen in kitchens:
            kitchen.gate.clear()
        tasks = [bench.submit(1, max_tokens=ONE_ITEM, length=length) for length in (3, 7)]
        for kitchen in kitchens:
            assert await asyncio.to_thread(kitchen.stepping.wait, 5)
        for kitchen, task, seconds in zip(kitchens, tasks, (4, 10), strict=True):
            clock.now = started + seconds
            kitchen.gate.set()
            await task
        await bench.batcher.stop()

    asyncio.run(asyncio.wait_for(run(), HANGS))
    assert drained == [(2.0, 4 / 2), (4.0, 10)]


def test_the_cost_of_steps_is_recorded_where_no_sequence_joins():
    class Recorded(CostModel):
        def record(self, sample):
            samples.append(sample)

    async def run():
        bench = Bench()
        limits = bench.batcher.limits
        bench.batcher = ContinuousBatcher([bench.kitchen.start], limits, bench.recorder, costs=[Recorded()])
        bench.batcher.start()
        await bench.submit(3, 3, 3, 3, beam_size=5)
        await bench.batcher.stop()

    samples = []
    asyncio.run(asyncio.wait_for(run(), HANGS))
    assert [(items, number) for items, number, _ in samples] == [(4, 2), (4, 3)]
    assert all(0.001 <= seconds < HANGS for *_, seconds in samples)


def test_requests_are_expected_to_take_their_measured_steps_before_anything_was_served():
    async def run():
        bench, model = Bench(), CostModel()
        model.terms = Terms(fixed=8.0, item=1.0, token=0.25)
        starts = [bench.kitchen.start] * 2
        bench.batcher = ContinuousBatcher(starts, bench.batcher.limits, bench.recorder, costs=[model] * 2)
        task = bench.submit(1, length=5, max_tokens=ONE_ITEM)
        await asyncio.sleep(0)
        # A step of 8 sequences after 16 tokens, by its sequences and the devices, for a cost of 3.
        assert bench.batcher.expected_wait == pytest.approx((8 + 8 * (1 + 0.25 * 16)) / 8 / 2 * 3)
        bench.batcher.start()
        await task
        await bench.batcher.stop()

    asyncio.run(asyncio.wait_for(run(), HANGS))


def test_sequences_decode_together_where_their_output_limits_are_of_one_class():
    async def scenario(bench):
        first = await bench.hold(9, max_tokens=1)
        others = [bench.submit(steps, max_tokens=most) for steps, most in ((1, 128), (2, 129), (3, 512), (4, 513))]
        await asyncio.sleep(0)
        bench.kitchen.gate.set()
        await asyncio.gather(first, *others)
        assert bench.kitchen.joined == [(1, [9]), (1, [1]), (1, [2, 3]), (1, [4])]
        assert bench.kitchen.max_tokens == [1, 128, 129, 512, 513]

    with_bench(scenario)


def test_no_more_than_1024_source_tokens_are_encoded_together():
    async def scenario(bench):
        await bench.submit(1, 2, 3, length=512)
        assert bench.kitchen.joined == [(1, [1, 2]), (1, [3])]

    with_bench(scenario, max_batch_tokens=10_000, max_queue_tokens=10_000)
