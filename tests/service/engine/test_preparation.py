"""Tests of preparation: queries are made on threads, within the deadline, and not for cancelled requests."""

import asyncio
import threading
import time

import pytest

from models import NativeError
from service.engine.batcher import DeadlineExceeded
from service.engine.computations import Computations, ComputationTimeout, ModelStuck
from service.engine.preparation import Preparation


@pytest.fixture
def preparation():
    preparation = Preparation()
    yield preparation
    preparation.close()


def soon(seconds=20.0):
    return time.monotonic() + seconds


def test_an_expired_request_is_not_begun(preparation):
    for prepare in (preparation.texts, preparation.images):
        with pytest.raises(DeadlineExceeded):
            asyncio.run(prepare(pytest.fail, ["a"], soon(-1)))


def test_the_deadline_holds_while_a_request_waits_for_a_thread(preparation):
    opened = threading.Event()

    async def run():
        blocking = [asyncio.create_task(preparation.images(lambda _: opened.wait(10), ["a"], soon())) for _ in range(2)]
        await asyncio.sleep(0.05)
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded) as late:
            await preparation.images(pytest.fail, ["b"], soon(0.1))
        assert not late.value.preparing
        assert time.monotonic() - started < 1
        opened.set()
        await asyncio.gather(*blocking)

    asyncio.run(run())


def test_a_request_that_is_cancelled_ends_before_its_next_input(preparation):
    seen, entered, opened = [], threading.Event(), threading.Event()

    def query(text):
        seen.append(text)
        entered.set()
        opened.wait(10)

    async def run():
        task = asyncio.create_task(preparation.images(query, ["a", "b"], soon()))
        await asyncio.to_thread(entered.wait, 10)
        task.cancel()
        await asyncio.wait([task])
        opened.set()
        await preparation.images(lambda _: None, ["c", "d"], soon())
        await asyncio.sleep(0.05)

    asyncio.run(run())
    assert seen == ["a"]


def test_no_more_requests_than_threads_are_decoded_at_a_time_although_clients_leave(preparation):
    running, most, opened = [], [], threading.Event()

    def query(text):
        running.append(text)
        most.append(len(running))
        opened.wait(5)
        running.pop()

    async def run():
        tasks = [asyncio.create_task(preparation.images(query, ["a"], soon())) for _ in range(6)]
        await asyncio.sleep(0.1)
        for task in tasks[:4]:
            task.cancel()
        await asyncio.sleep(0.1)
        opened.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert max(most) <= 2


@pytest.mark.parametrize(
    ("texts", "inline"), [(["a"] * 64, True), (["a"] * 65, False), (["a" * 20_000], True), (["a" * 20_001], False)]
)
def test_requests_that_would_block_the_event_loop_are_prepared_on_a_thread(preparation, texts, inline):
    async def run():
        threads = await preparation.texts(lambda _: threading.get_ident(), texts, soon())
        assert (set(threads) == {threading.get_ident()}) is inline

    asyncio.run(run())


@pytest.mark.parametrize("count", [1, 65])
def test_a_panic_of_native_code_is_an_error(preparation, count):
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})

    def query(text):
        raise panic(text)

    with pytest.raises(NativeError, match="the preparation of an input failed: PanicException: a"):
        asyncio.run(preparation.texts(query, ["a"] * count, soon()))


def test_it_is_said_that_preparing_took_the_time(preparation):
    opened = threading.Event()

    async def run():
        with pytest.raises(DeadlineExceeded) as late:
            await preparation.images(lambda _: opened.wait(10), ["a"], soon(0.3))
        opened.set()
        assert late.value.preparing

    asyncio.run(run())


def test_an_input_that_is_never_prepared_makes_its_model_stuck_and_others_go_on(preparation):
    opened = threading.Event()

    async def run():
        own, other = Computations(0.2, grace=0.2), Computations()
        watching = asyncio.create_task(own.watch())
        hanging = [preparation.images(lambda _: opened.wait(60), ["a"], soon(60), own) for _ in range(2)]
        waiting = preparation.images(pytest.fail, ["a"], soon(60), own)
        answers = await asyncio.gather(*hanging, waiting, return_exceptions=True)
        assert [type(each) for each in answers] == [ModelStuck] * 3
        assert await preparation.images(str.upper, ["b", "c"], soon(), other) == ["B", "C"]
        opened.set()
        while own.stuck:
            await asyncio.sleep(0.01)
        assert await preparation.images(str.upper, ["d"], soon(), own) == ["D"]
        watching.cancel()

    asyncio.run(run())


def test_a_given_up_thread_makes_room_for_one_request_only(preparation):
    """Its slot is not released a second time when it returns."""
    running, most, hung, opened = [], [], threading.Event(), threading.Event()

    def query(text):
        running.append(text)
        most.append(len(running))
        opened.wait(5)
        running.pop()

    async def run():
        own = Computations()
        stuck = asyncio.create_task(preparation.images(lambda _: hung.wait(60), ["a"], soon(60), own))
        while not any(each.begun for each in own._running):
            await asyncio.sleep(0.01)
        own._give_up(*own._running)
        with pytest.raises(ModelStuck):
            await stuck
        hung.set()
        while own._running:
            await asyncio.sleep(0.01)
        tasks = [asyncio.create_task(preparation.images(query, ["a"], soon())) for _ in range(6)]
        await asyncio.sleep(0.1)
        opened.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert max(most) <= 2


def test_a_request_after_the_other_uses_the_same_thread(preparation):
    """Each thread keeps memory of its own."""

    async def run():
        idents = set()
        for _ in range(200):
            idents.update(await preparation.images(lambda _: threading.get_ident(), ["a"], soon()))
        return idents

    assert len(asyncio.run(run())) == 1


def test_many_short_inputs_that_take_too_long_together_are_interrupted_and_the_model_goes_on(preparation):
    async def run():
        own = Computations(0.3, grace=2)
        watching = asyncio.create_task(own.watch())
        with pytest.raises(ComputationTimeout):
            await preparation.images(lambda _: time.sleep(0.02), ["a"] * 1000, soon(60), own)
        assert not own.stuck
        assert await preparation.images(str.upper, ["b"], soon(), own) == ["B"]
        watching.cancel()

    asyncio.run(run())


def test_texts_are_prepared_together_in_groups(preparation):
    groups = []

    def queries(texts):
        groups.append(list(texts))
        return [text.upper() for text in texts]

    for texts in (["a"] * 3, [f"{number}" for number in range(100)], ["a" * 15_000, "b" * 15_000, "c"], []):
        groups.clear()
        made = asyncio.run(preparation.texts(pytest.fail, texts, soon(), None, queries))
        assert made == [text.upper() for text in texts]
        assert [text for group in groups for text in group] == texts
        assert all(len(group) <= 32 and sum(map(len, group)) <= 20_000 for group in groups)
