"""Tests of continuous batching on several devices, and within a cache budget."""

import asyncio

import pytest

from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from service.engine.budget import Budget, OverBudget
from service.engine.continuous_batching import ContinuousBatcher
from tests.service.engine.test_continuous_batching import HANGS, Bench, Kitchen, with_bench

# ---- several devices ----


def with_two_devices(scenario):
    async def run():
        bench, kitchens = Bench(), [Kitchen(), Kitchen()]
        limits = bench.batcher.limits
        bench.batcher = ContinuousBatcher([kitchen.start for kitchen in kitchens], limits, bench.recorder)
        bench.batcher.start()
        async with asyncio.timeout(HANGS):
            await scenario(bench, kitchens)
            for kitchen in kitchens:
                kitchen.gate.set()
            await bench.batcher.stop()

    asyncio.run(run())


def test_devices_share_what_waits():
    async def scenario(bench, kitchens):
        for kitchen in kitchens:
            kitchen.gate.clear()
        task = bench.submit(2, 2, 2, 2)
        for kitchen in kitchens:
            assert await asyncio.to_thread(kitchen.stepping.wait, 5), "both decode at the same time"
            kitchen.gate.set()
        assert len((await task)[0]) == 4

    with_two_devices(scenario)


def test_what_breaks_on_one_device_harms_nothing_on_the_other():
    async def scenario(bench, kitchens):
        kitchens[0].gate.clear()
        good = bench.submit(3)
        assert await asyncio.to_thread(kitchens[0].stepping.wait, 5)
        with pytest.raises(ArithmeticError):
            await bench.submit(0)
        kitchens[0].gate.set()
        assert len((await good)[0]) == 1

    with_two_devices(scenario)


def test_a_broken_device_does_not_take_all_there_is():
    async def scenario(bench, kitchens):
        kitchens[0].breaks = True
        tasks = [bench.submit(1) for _ in range(10)]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, ArithmeticError)]
        assert 1 <= len(failed) <= 4, "at most the sequences that it had taken together"

    with_two_devices(scenario)


def test_all_devices_finish_before_the_end():
    async def scenario(bench, kitchens):
        tasks = [bench.submit(5) for _ in range(6)]
        await asyncio.sleep(0)
        await bench.batcher.stop()
        assert all([len((await task)[0]) == 1 for task in tasks])

    with_two_devices(scenario)


# ---- the cache budget ----


def with_cache(scenario, total, **changes):
    """Runs a scenario on a worker whose cache holds `total` sequences of beam 1, see `Countdown.reserved_bytes`."""

    async def run():
        bench = Bench(**changes)
        bench.batcher = ContinuousBatcher([bench.kitchen.start], bench.batcher.limits, bench.recorder, cache=total)
        bench.batcher.start()
        try:
            async with asyncio.timeout(HANGS):
                await scenario(bench)
        finally:
            bench.kitchen.gate.set()
            await bench.batcher.stop()

    asyncio.run(run())


def test_sequences_wait_until_the_cache_has_room_for_them():
    cache = Budget(3, "bytes")

    async def scenario(bench):
        running = await bench.hold(3, 3)
        large, small = bench.submit(1, beam_size=3), bench.submit(1)
        await asyncio.sleep(0.02)
        assert cache.used == 2
        bench.kitchen.gate.set()
        await asyncio.gather(running, large, small)
        assert bench.kitchen.joined == [(1, [3, 3]), (1, [1]), (3, [1])]  # the small one takes the room that is left
        await asyncio.sleep(0.02)
        assert cache.used == 0

    with_cache(scenario, cache)


def test_one_that_was_passed_over_for_too_long_is_passed_over_no_more():
    cache = Budget(3, "bytes")

    async def scenario(bench):
        running = await bench.hold(3, 3)
        large = bench.submit(1, beam_size=3)
        await asyncio.sleep(0.1)
        small = bench.submit(1)
        bench.kitchen.gate.set()
        await asyncio.gather(running, large, small)
        assert bench.kitchen.joined == [(1, [3, 3]), (3, [1]), (1, [1])]

    with_cache(scenario, cache, starvation_limit=0.05)


def test_what_the_whole_cache_cannot_hold_is_refused():
    cache = Budget(3, "bytes of the cache")

    async def scenario(bench):
        with pytest.raises(OverBudget, match="needs 4 bytes of the cache; the limit is 3"):
            await bench.submit(1, beam_size=4)
        await bench.submit(1, beam_size=3)

    with_cache(scenario, cache)


def test_models_share_the_cache_and_wait_in_line_for_it():
    cache = Budget(3, "bytes")

    async def scenario(bench):
        other = Bench()
        other.batcher = ContinuousBatcher([other.kitchen.start], bench.batcher.limits, other.recorder, cache=cache)
        other.batcher.start()
        running = await bench.hold(2, 2)
        large = other.submit(1, beam_size=3)
        await asyncio.sleep(0.02)
        later = bench.submit(1)  # it would fit, but the other model waits
        await asyncio.sleep(0.02)
        bench.kitchen.gate.set()
        await asyncio.gather(running, large, later)
        assert bench.kitchen.joined == [(1, [2, 2]), (1, [1])]
        await other.batcher.stop()
        assert cache.used == 0

    with_cache(scenario, cache)


def test_the_cache_is_free_again_after_a_failure():
    cache = Budget(3, "bytes")

    async def scenario(bench):
        with pytest.raises(ArithmeticError):
            await bench.submit(0, beam_size=3)
        await bench.submit(1, beam_size=3)
        await asyncio.sleep(0.02)
        assert cache.used == 0

    with_cache(scenario, cache)


def test_sequences_that_join_together_are_a_batch_of_the_tracer():
    class Tracer:
        def __init__(self):
            self.batches = []

        def context(self):
            return f"request {len(self.batches)}"

        def batch(self, number, lengths, requests, seconds):
            self.batches.append((number, lengths, requests, seconds))

    tracer = Tracer()

    async def run():
        bench = Bench()
        bench.batcher = ContinuousBatcher([bench.kitchen.start], bench.batcher.limits, bench.recorder, tracer=tracer)
        bench.batcher.start()
        await bench.submit(1, 3)
        await bench.submit(2)
        await bench.batcher.stop()

    asyncio.run(run())
    assert [batch[:3] for batch in tracer.batches] == [(1, [2, 2], ["request 0"] * 2), (2, [2], ["request 1"])]
    assert all(0 < seconds < HANGS for *_, seconds in tracer.batches)


def test_sequences_that_were_given_up_do_not_make_the_queue_look_slow():
    async def scenario(bench):
        await bench.submit(7, 7, 7, 7)
        usual = bench.batcher._drain.seconds(1000)
        for _ in range(10):
            task = bench.submit(1000)
            await asyncio.sleep(0.05)
            task.cancel()
        await asyncio.sleep(0.02)
        assert bench.batcher._drain.seconds(1000) < 20 * usual

    with_bench(scenario)


def test_the_cost_of_a_sequence_grows_with_its_beam():
    bench = Bench()
    costs = {}
    for beam_size in (1, 5, 32):
        query = SourceSequence((1,) * 79, beam_size, SearchOptions(), 0)
        (costs[beam_size],) = bench.batcher._costs("translate", [query])
    assert costs == {1: 40.0, 5: 80.0, 32: 350.0}
