"""The cache of results: coalescing, cancellation, deadlines, and memory."""

import asyncio
import time
from dataclasses import dataclass

import numpy as np
import pytest

from service.engine.batcher import DeadlineExceeded
from service.engine.caller import CacheUse
from service.engine.result_cache import Cached, Key, ResultCache, deep_size


def key(value, tenant="", model=1):
    return Key(model, tenant, "double", b"", value)


class Asking:
    """Asks a cache for doubled numbers, which are computed once `gate` is open."""

    def __init__(self, max_bytes=1 << 20):
        self.cache, self.computed = ResultCache(max_bytes), []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error = None

    async def ask(self, *values, tenant="", urgency=3, seconds=60.0):
        keys = [key(value, tenant) for value in values]

        async def compute(places):
            self.computed.append([values[place] for place in places])
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            return [Cached(2 * values[place], 1) for place in places]

        found, use = await self.cache.results(keys, compute, urgency=urgency, deadline=time.monotonic() + seconds)
        return [each.result for each in found], use

    def start(self, *values, **options):
        return asyncio.create_task(self.ask(*values, **options))


def scenario(test):
    def run():
        async def main():
            async with asyncio.timeout(10):
                await test(Asking())

        asyncio.run(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@scenario
async def test_known_inputs_are_not_computed_again(asking):
    assert await asking.ask(1, 2) == ([2, 4], CacheUse(2, 0, 0))
    assert await asking.ask(3, 2, 1) == ([6, 4, 2], CacheUse(3, 2, 0))
    assert asking.computed == [[1, 2], [3]]


@scenario
async def test_the_same_input_twice_in_a_request_is_computed_once(asking):
    assert await asking.ask(1, 2, 1) == ([2, 4, 2], CacheUse(3, 0, 1))
    assert asking.computed == [[1, 2]]


@scenario
async def test_an_input_that_is_being_computed_is_awaited(asking):
    asking.gate.clear()
    first, second = asking.start(1, 2), asking.start(2, 3)
    await asyncio.sleep(0)
    asking.gate.set()
    assert [(await each)[0] for each in (first, second)] == [[2, 4], [4, 6]]
    assert asking.computed == [[1, 2], [3]]


@scenario
async def test_two_requests_that_await_each_other_are_answered(asking):
    asking.gate.clear()
    tasks = [asking.start(1, 2, 3), asking.start(3, 4, 1), asking.start(4, 5, 1)]
    await asyncio.sleep(0)
    asking.gate.set()
    assert [(await each)[0] for each in tasks] == [[2, 4, 6], [6, 8, 2], [8, 10, 2]]


@scenario
async def test_a_cancelled_request_cancels_no_other(asking):
    asking.gate.clear()
    leader, follower = asking.start(1), asking.start(1)
    await asyncio.sleep(0)
    leader.cancel()
    await asyncio.sleep(0)
    asking.gate.set()
    assert (await follower)[0] == [2]
    assert asking.computed == [[1], [1]]
    assert leader.cancelled()


@scenario
async def test_a_cancelled_follower_cancels_nothing(asking):
    asking.gate.clear()
    leader, follower, other = asking.start(1), asking.start(1), asking.start(1)
    await asyncio.sleep(0)
    follower.cancel()
    await asyncio.sleep(0)
    asking.gate.set()
    assert [(await each)[0] for each in (leader, other)] == [[2], [2]]
    assert asking.computed == [[1]]


@scenario
async def test_errors_are_not_cached_and_others_try_themselves(asking):
    asking.gate.clear()
    asking.error = ArithmeticError("bad luck")
    leader, follower = asking.start(1), asking.start(1)
    await asyncio.sleep(0)
    asking.gate.set()
    for each in (leader, follower):
        with pytest.raises(ArithmeticError):
            await each
    asking.error = None
    assert (await asking.ask(1))[0] == [2]
    assert (asking.computed, len(asking.cache)) == ([[1]] * 3, 1)


@scenario
async def test_a_follower_has_its_own_deadline(asking):
    asking.gate.clear()
    leader, follower = asking.start(1), asking.start(1, seconds=0.01)
    with pytest.raises(DeadlineExceeded):
        await follower
    asking.gate.set()
    assert (await leader)[0] == [2]


@scenario
async def test_an_urgent_request_does_not_wait_for_a_less_urgent_one(asking):
    asking.gate.clear()
    tasks = [asking.start(1, urgency=7), asking.start(1, urgency=0), asking.start(1, urgency=3)]
    await asyncio.sleep(0)
    assert asking.computed == [[1], [1]]
    asking.gate.set()
    assert [(await each)[0] for each in tasks] == [[2]] * 3


@scenario
async def test_keys_share_nothing(asking):
    asking.gate.clear()
    tasks = [asking.start(1, tenant="one"), asking.start(1, tenant="other")]
    await asyncio.sleep(0)
    asking.gate.set()
    await asyncio.gather(*tasks)
    await asking.ask(1, tenant="third")
    assert asking.computed == [[1]] * 3


@scenario
async def test_results_of_an_unloaded_model_are_dropped(asking):
    await asking.ask(1, 2)
    asking.cache.forget(2)
    assert len(asking.cache) == 2
    asking.cache.forget(1)
    assert (len(asking.cache), asking.cache.bytes) == (0, 0)


def test_memory_is_bounded_and_the_oldest_go_first():
    async def main():
        asking = Asking(max_bytes=10_000)
        for value in range(100):
            await asking.ask(value)
            await asking.ask(0)
            assert asking.cache.bytes <= 10_000
        kept = len(asking.cache)
        assert 5 < kept < 20
        asking.computed.clear()
        await asking.ask(0, *range(101 - kept, 100))
        assert not asking.computed
        await asking.ask(1)
        assert asking.computed == [[1]]

    asyncio.run(main())


def test_a_result_beyond_the_whole_cache_is_not_kept():
    async def main():
        asking = Asking(max_bytes=2000)
        await asking.ask(1)
        await asking.ask("a" * 4000)
        assert len(asking.cache) == 1

    asyncio.run(main())


@dataclass(frozen=True, slots=True)
class Slotted:
    text: str
    vector: np.ndarray


@dataclass
class Plain:
    parts: tuple


def test_sizes_are_those_of_everything_a_result_refers_to():
    vector = np.zeros(1000, np.float32)
    text = "a" * 5000
    assert 9000 < deep_size(Slotted(text, vector))[0] < 9500
    assert 9000 < deep_size(Plain((Slotted(text, vector), [text], {"a": vector})))[0] < 10_000, "each is counted once"


def test_a_part_of_an_array_does_not_keep_the_rest():
    async def main():
        cache, batch = ResultCache(1 << 20), np.zeros((64, 100), np.float32)

        async def compute(places):
            return [Cached(Slotted("a", batch[place]), 1) for place in places]

        found, _ = await cache.results([key(n) for n in range(64)], compute, urgency=3, deadline=time.monotonic() + 9)
        assert cache.bytes < 64 * 3000
        assert deep_size(found[0].result)[1]

    asyncio.run(main())
