"""Tests of coroutines that run until they first wait."""

import asyncio

import pytest

from service.engine.started import Started, in_time


async def at_once(value):
    return value


async def fail():
    raise KeyError("no")


def test_what_does_not_wait_has_ended():
    async def run():
        started = Started(at_once(3))
        assert started.ended
        assert await started == 3

    asyncio.run(run())


def test_what_waits_goes_on_where_it_is_awaited():
    async def run():
        event, steps = asyncio.Event(), []

        async def wait():
            steps.append("begun")
            await event.wait()
            await asyncio.sleep(0)
            return "done"

        started = Started(wait())
        assert (steps, started.ended) == (["begun"], False)
        asyncio.get_running_loop().call_soon(event.set)
        assert await started == "done"

    asyncio.run(run())


def test_it_goes_on_in_another_task():
    async def run():
        event = asyncio.Event()
        started = Started(event.wait())

        async def other():
            return await started

        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        event.set()
        assert await task is True

    asyncio.run(run())


@pytest.mark.parametrize("coroutine", [fail, lambda: asyncio.wait_for(fail(), 1)])
def test_errors_are_raised_where_it_is_awaited(coroutine):
    async def run():
        started = Started(coroutine())
        with pytest.raises(KeyError):
            await started

    asyncio.run(run())


def test_errors_thrown_into_it_reach_it():
    async def run():
        caught = []

        async def wait():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                caught.append(True)
                raise

        started = Started(wait())

        async def other():
            await started

        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert caught == [True]

    asyncio.run(run())


def test_it_says_once_that_it_can_go_on():
    async def run():
        event, calls = asyncio.Event(), []
        started = Started(event.wait())
        started.when_ready(lambda: calls.append(True))
        await asyncio.sleep(0)
        assert not calls
        event.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert calls == [True]
        Started(at_once(1)).when_ready(lambda: calls.append(False))
        assert calls == [True, False]

    asyncio.run(run())


def test_a_closed_one_leaves_nothing_behind():
    async def run():
        event = asyncio.Event()
        started = Started(event.wait())
        started.close()
        event.set()
        assert not event._waiters

    asyncio.run(run())


def test_an_awaitable_need_not_be_a_coroutine():
    async def run():
        future = asyncio.get_running_loop().create_future()
        started = Started(future)
        assert not started.ended
        future.set_result(5)
        assert await started == 5

    asyncio.run(run())


def test_in_time():
    async def run():
        assert await in_time(at_once(2), 0.0) == 2
        assert await in_time(asyncio.sleep(0.001, 4), 5.0) == 4
        with pytest.raises(TimeoutError):
            await in_time(asyncio.Event().wait(), 0.01)
        with pytest.raises(KeyError):
            await in_time(fail(), 1.0)

    asyncio.run(run())
