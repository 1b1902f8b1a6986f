"""Tests of budgets: reservations never exceed the total, and wait in order."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.budget import BodyBudget, BodyReservation, Budget, OverBudget, ResultBudget


def test_what_fits_is_reserved_at_once_and_released():
    budget = Budget(10, "items")
    assert budget.try_reserve(7)
    assert not budget.try_reserve(4)
    assert budget.try_reserve(3)
    assert budget.used == 10
    budget.release(7)
    assert budget.used == 3


def test_what_never_fits_is_an_error_that_names_the_limit():
    with pytest.raises(OverBudget, match="the request needs 11 bytes of cake; the limit is 10"):
        asyncio.run(Budget(10, "bytes of cake").reserve(11))


def test_reservations_wait_in_order_and_later_ones_do_not_overtake():
    async def run():
        budget, granted = Budget(10, "items"), []

        async def reserve(amount):
            await budget.reserve(amount)
            granted.append(amount)

        await reserve(6)
        waiting = [asyncio.create_task(reserve(amount)) for amount in (9, 2)]
        await asyncio.sleep(0)
        assert not budget.try_reserve(1)
        budget.release(6)
        await asyncio.gather(waiting[0])
        assert granted == [6, 9]
        budget.release(9)
        await asyncio.gather(*waiting)
        assert granted == [6, 9, 2]

    asyncio.run(run())


def test_a_reservation_may_be_the_first_of_those_that_wait():
    async def run():
        budget, granted = Budget(10, "items"), []

        async def reserve(amount, **options):
            await budget.reserve(amount, **options)
            granted.append(amount)

        await reserve(6)
        waiting = [asyncio.create_task(reserve(amount)) for amount in (9, 3)]
        await asyncio.sleep(0)
        await reserve(4, first=True)
        waiting.append(asyncio.create_task(reserve(5, first=True)))
        await asyncio.sleep(0)
        budget.release(6)
        await asyncio.sleep(0)
        assert granted == [6, 4, 5]
        budget.release(9)
        await waiting[0]
        budget.release(9)
        await asyncio.gather(*waiting)
        assert granted == [6, 4, 5, 9, 3]

    asyncio.run(run())


@pytest.mark.parametrize("granted_first", [False, True])
def test_a_reservation_that_is_cancelled_takes_nothing_and_holds_nothing_up(granted_first):
    async def run():
        budget = Budget(10, "items")
        await budget.reserve(8)
        large, small = asyncio.create_task(budget.reserve(10)), asyncio.create_task(budget.reserve(2))
        await asyncio.sleep(0)
        if granted_first:
            budget.release(8)
        large.cancel()
        await asyncio.wait([large])
        await small
        assert large.cancelled()
        assert budget.used == (2 if granted_first else 10)

    asyncio.run(run())


@given(st.lists(st.tuples(st.sampled_from(["reserve", "cancel", "release", "wait"]), st.integers(0, 10))))
def test_no_order_of_events_exceeds_the_total_or_loses_anything(events):
    budget, tasks = Budget(10, "items"), {}

    def settle(task):
        if task.done() and not task.cancelled():
            budget.release(tasks.pop(task))

    async def run():
        for event, number in events:
            chosen = list(tasks)[number % len(tasks)] if tasks else None
            if event == "reserve":
                tasks[asyncio.create_task(budget.reserve(number))] = number
            elif event == "wait":
                await asyncio.sleep(0)
            elif chosen is not None:
                chosen.cancel() if event == "cancel" else settle(chosen)
            assert 0 <= budget.used <= 10
        while any(not task.cancelled() for task in tasks):
            await asyncio.sleep(0)
            for task in list(tasks):
                settle(task)
        assert budget.used == 0

    asyncio.run(run())


def test_small_requests_do_not_wait_for_large_ones():
    async def run():
        results = ResultBudget(6400, "result items")
        await results.of(6400).reserve(6400)
        for _ in range(16):
            await results.of(100).reserve(100)
        assert not results.of(100).try_reserve(100)

    asyncio.run(run())


def test_the_first_body_that_waits_is_received_with_the_bytes_that_are_kept():
    async def run():
        budget = BodyBudget(30, 10)
        first, second, third = (BodyReservation(budget) for _ in range(3))
        await first.extend(9)
        await second.extend(9)
        await first.extend(4)  # more than is left of the shared 20
        waiting = [asyncio.create_task(each.extend(4)) for each in (second, third)]
        await asyncio.sleep(0)
        assert (budget.used, [each.done() for each in waiting]) == (18, [False, False])
        await first.extend(2)
        first.release()
        await asyncio.gather(*waiting)
        assert (budget.used, second.shared, third.shared) == (17, 13, 4)

    asyncio.run(run())


def test_a_body_that_no_longer_waits_holds_up_no_others():
    async def run():
        budget = BodyBudget(30, 10)
        first, second, third, fourth = (BodyReservation(budget) for _ in range(4))
        await first.extend(15)
        await second.extend(10)
        large = asyncio.create_task(third.extend(8))
        small = asyncio.create_task(fourth.extend(5))
        await asyncio.sleep(0)
        assert not small.done()
        large.cancel()
        await asyncio.wait([large])
        await small
        for each in (first, second, third, fourth):
            each.release()
        assert (budget.used, budget._completing, len(budget._waiting)) == (0, None, 0)

    asyncio.run(run())


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), max_size=12))
def test_bodies_never_wait_for_one_another(bodies):
    async def run():
        budget = BodyBudget(30, 20)

        async def receive(steps):
            body = BodyReservation(budget)
            for step in steps:
                await body.extend(step)
                assert budget.used <= 10
                await asyncio.sleep(0)
            body.release()

        async with asyncio.timeout(5):
            await asyncio.gather(*map(receive, bodies))
        assert (budget.used, budget._completing) == (0, None)

    asyncio.run(run())
