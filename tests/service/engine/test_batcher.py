"""Tests of admission, deadlines, cancellation and stopping, which all batchers share."""

import asyncio
import math
import threading
import time

import pytest

from service.engine.batcher import DeadlineExceeded, EngineFailed, Stopped
from service.engine.computations import ModelStuck
from service.engine.queue import QueueFull
from tests.service.engine.doubling import Query, values, with_bench


def test_everything_runs_on_one_thread_that_is_not_the_loop():
    async def scenario(bench):
        for value in range(5):
            await bench.submit(value)
        assert len(bench.double.threads) == 1
        assert threading.get_ident() not in bench.double.threads

    with_bench(scenario)


def test_past_deadlines_are_never_computed():
    async def scenario(bench):
        await bench.block()
        late, fine = bench.submit(1, 2, seconds=0.01), bench.submit(3)
        await asyncio.sleep(0.05)
        bench.double.gate.set()
        with pytest.raises(DeadlineExceeded):
            await late
        assert await values(fine) == [6]
        assert bench.double.batches == [[0], [3]]
        assert bench.recorder.rejections == [("expired", 2)]

    with_bench(scenario)


def test_a_deadline_in_the_past_is_never_computed():
    async def scenario(bench):
        with pytest.raises(DeadlineExceeded):
            await bench.submit(1, seconds=-1)
        assert bench.double.batches == []

    with_bench(scenario)


def test_a_deadline_holds_while_a_batch_is_computed_which_is_finished_for_its_neighbours():
    async def scenario(bench):
        blocking = await bench.block()
        hurried, patient = bench.submit(1, seconds=0.5), bench.submit(2)
        await asyncio.sleep(0.05)
        bench.double.gate.set()
        await blocking
        bench.double.gate.clear()
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await hurried
        assert time.monotonic() - started < 1.0
        bench.double.gate.set()
        assert await values(patient) == [4]
        assert bench.recorder.rejections == [("expired", 1)]

    with_bench(scenario)


def test_an_engine_task_that_dies_fails_all_that_is_pending(caplog):
    async def scenario(bench):
        blocking = await bench.block()
        waiting = bench.submit(1, 2)
        await asyncio.sleep(0.02)

        def broken(now):
            raise ArithmeticError("a bug in the policy")

        bench.batcher._queue.next_batch = broken
        bench.double.gate.set()
        assert await values(blocking) == [0]
        for task in (waiting, bench.submit(3)):
            with pytest.raises(EngineFailed):
                await task
        assert isinstance(bench.batcher.failure, ArithmeticError)
        assert bench.recorder.failures == 1

    with_bench(scenario)
    assert "a bug in the policy" in caplog.text


def stick(bench):
    """Give up the batch that is being computed."""
    for computation in bench.batcher.computations._running:
        bench.batcher.computations._give_up(computation)


def test_a_batch_that_does_not_return_fails_all_that_is_pending_until_it_does():
    async def scenario(bench):
        blocking = await bench.block()
        waiting = bench.submit(1, 2)
        await asyncio.sleep(0.02)
        assert bench.batcher.working
        stick(bench)
        for task in (blocking, waiting, bench.submit(3)):
            with pytest.raises(ModelStuck):
                await task
        with pytest.raises(ModelStuck), bench.batcher.preparing("double", 1, math.inf):
            pass
        assert not bench.batcher.working
        assert bench.recorder.stuck == 1
        bench.double.gate.set()
        while not bench.batcher.working:
            await asyncio.sleep(0.01)
        assert await values(bench.submit(4)) == [8]

    with_bench(scenario)


def test_stopping_does_not_wait_for_a_batch_that_does_not_return():
    async def scenario(bench):
        blocking = await bench.block()
        stick(bench)
        with pytest.raises(ModelStuck):
            await blocking
        await bench.batcher.stop()
        with pytest.raises(ModelStuck):
            await bench.submit(1)

    with_bench(scenario)


def test_what_its_own_deadline_cannot_meet_is_refused_and_what_it_can_is_not():
    async def scenario(bench):
        bench.batcher._drain.record(10, 1.0)  # a tenth of a second a token
        blocking = await bench.block()
        waiting = [bench.submit(value) for value in range(1, 11)]
        await asyncio.sleep(0.02)  # a second of work waits
        with pytest.raises(QueueFull) as caught:
            await bench.submit(11, seconds=2.1)
        assert (caught.value.never, round(caught.value.retry_after, 1)) == (False, 1.0)
        accepted = bench.submit(12, seconds=2.5)
        await asyncio.sleep(0.02)
        bench.double.gate.set()
        await asyncio.gather(blocking, accepted, *waiting)

    with_bench(scenario, max_wait=math.inf)


def test_what_is_being_prepared_counts_as_if_it_waited():
    async def scenario(bench):
        with bench.batcher.preparing("double", 15, math.inf):
            with pytest.raises(QueueFull), bench.batcher.preparing("double", 2, math.inf):
                pass
            assert await values(bench.submit(1)) == [2]
        with bench.batcher.preparing("double", 16, math.inf):
            pass

    with_bench(scenario)


def test_what_is_being_prepared_is_refused_where_its_own_cost_exceeds_the_deadline():
    async def scenario(bench):
        bench.batcher._drain.record(1, 1.0)  # a second a token
        blocking, deadline = await bench.block(), time.monotonic() + 20
        with bench.batcher.preparing("double", 1, deadline, tokens=5):
            pass
        with pytest.raises(QueueFull), bench.batcher.preparing("double", 1, deadline, tokens=15):
            pass
        bench.double.gate.set()
        await blocking

    with_bench(scenario)


@pytest.mark.parametrize(
    ("value", "seconds", "error"),
    [(1, 60.0, None), (None, 60.0, TypeError), (1, 60.0, asyncio.CancelledError), (1, 0.5, DeadlineExceeded)],
    ids=["success", "error", "cancellation", "expiry"],
)
def test_a_computation_that_has_ended_is_no_longer_waited_for(value, seconds, error):
    async def scenario(bench):
        bench.batcher._drain.record(1, 1.0)  # a second a token
        bench.double.gate.clear()
        task = bench.submit(value, length=3, seconds=seconds)
        assert await asyncio.to_thread(bench.double.running.wait, 10)
        assert bench.batcher.expected_wait == 3.0
        if error is asyncio.CancelledError:
            task.cancel()
        if error is not DeadlineExceeded:
            bench.double.gate.set()
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(answer, error or tuple)
        bench.double.gate.set()
        await bench.batcher.stop()
        assert bench.batcher.expected_wait == 0.0

    with_bench(scenario)


def test_the_items_of_a_result_are_a_part_of_its_cost():
    async def scenario(bench):
        bench.batcher._drain.record(1, 1.0)  # a second a token, or 64 items of a result
        blocking = await bench.block()
        part = Query(1, length=3, result_items=128)
        waiting = asyncio.create_task(bench.batcher.submit("double", [part], time.monotonic() + 60))
        await asyncio.sleep(0)
        assert bench.batcher.expected_wait == 1 + 3 + 2
        bench.double.gate.set()
        await asyncio.gather(blocking, waiting)

    with_bench(scenario)


def test_a_cancelled_call_never_runs():
    async def scenario(bench):
        await bench.block()
        cancelled, fine = bench.submit(1, 2), bench.submit(3)
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert bench.recorder.queues[-1] == (1, 1)
        assert bench.recorder.rejections == [("cancelled", 2)]
        bench.double.gate.set()
        assert await values(fine) == [6]
        assert bench.double.batches == [[0], [3]]

    with_bench(scenario)


def test_cancelling_a_running_request_leaves_others_alone():
    async def scenario(bench):
        blocked = await bench.block()
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        bench.double.gate.set()
        assert await values(bench.submit(1)) == [2]

    with_bench(scenario)


def test_a_full_queue_refuses_at_once():
    async def scenario(bench):
        await bench.block()
        waiting = bench.submit(1, 2)
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as caught:
            await bench.submit(3)
        assert not caught.value.never
        assert not bench.double.gate.is_set()
        assert bench.recorder.rejections == [("overloaded", 1)]
        bench.double.gate.set()
        assert await values(waiting) == [2, 4]
        assert await values(bench.submit(3)) == [6]

    with_bench(scenario, max_queue_items=2)


def test_admitted_and_refused_parts_are_counted():
    async def scenario(bench):
        blocking = await bench.block()
        waiting = bench.submit(1, 2)
        await asyncio.sleep(0)
        for refused, length in (((3, 4, 5), 1), ((6,), 10)):  # too many queries, and too many tokens
            with pytest.raises(QueueFull):
                await bench.submit(*refused, length=length)
        bench.double.gate.set()
        await asyncio.gather(blocking, waiting)
        assert (bench.batcher.admitted, bench.batcher.refused) == (1 + 2, 3 + 1)

    with_bench(scenario, max_queue_items=4, max_queue_tokens=10)


def test_a_refusal_says_how_long_what_waits_will_take():
    async def scenario(bench):
        with pytest.raises(QueueFull) as caught:
            await bench.submit(*range(20))
        assert caught.value.retry_after == 0.0  # nothing was measured yet
        await values(bench.submit(1))
        bench.batcher._drain.record(10**6, 10**7)
        await bench.block()
        waiting = bench.submit(1, 2, length=3)
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as caught:
            await bench.submit(3)
        assert caught.value.retry_after == pytest.approx(60, rel=0.01)
        bench.double.gate.set()
        await values(waiting)

    with_bench(scenario, max_queue_items=2)


def test_who_would_wait_too_long_is_refused_whatever_room_there_is():
    async def scenario(bench):
        bench.batcher._drain.record(10**6, 10**6)  # a token a second
        await bench.block()
        waiting = bench.submit(1, length=5)
        await asyncio.sleep(0)
        bench.batcher.admit(15)  # 5 seconds are fine
        too_many = bench.submit(2)
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as early:
            bench.batcher.admit(1)
        with pytest.raises(QueueFull) as late:
            await bench.submit(3)
        for caught in (early, late):
            assert (caught.value.never, round(caught.value.retry_after, 3)) == (False, 6.0)
        assert bench.recorder.rejections == [("overloaded", 1)] * 2
        bench.double.gate.set()
        assert await values(waiting) + await values(too_many) == [2, 4]

    with_bench(scenario, max_wait=5.5)


def test_a_request_that_never_fits_is_said_to():
    async def scenario(bench):
        with pytest.raises(QueueFull) as caught:
            await bench.submit(1, 2, 3)
        assert caught.value.never
        assert bench.double.batches == []

    with_bench(scenario, max_queue_items=2)


def test_stopping_computes_what_was_accepted_and_refuses_the_rest():
    async def scenario(bench):
        blocked = await bench.block()
        waiting = bench.submit(1)
        await asyncio.sleep(0)
        stopping = asyncio.create_task(bench.batcher.stop())
        await asyncio.sleep(0)
        with pytest.raises(Stopped):
            await bench.submit(2)
        assert not stopping.done()
        bench.double.gate.set()
        await stopping
        assert await values(blocked) + await values(waiting) == [0, 2]
        with pytest.raises(Stopped):
            await bench.submit(3)

    with_bench(scenario)


def test_stopping_an_idle_worker_twice_is_fine():
    async def scenario(bench):
        await bench.batcher.stop()
        await bench.batcher.stop()

    with_bench(scenario)


def test_a_request_that_expires_is_counted_once():
    """Its deadline ends it, and the engine finds it in the queue before its caller has gone on."""

    async def scenario(bench):
        blocked = await bench.block()
        late = bench.submit(1, 2, seconds=30)
        await asyncio.sleep(0)
        (outputs,) = [each for each in bench.batcher._submitted if each.left == 2]
        entries = list(bench.batcher._queue._entries)
        for entry in entries:
            entry.deadline = time.monotonic() - 1
        bench.batcher._queue._earliest_deadline = -math.inf
        bench.batcher._expire(outputs, entries)
        bench.batcher._drop_expired()
        with pytest.raises(DeadlineExceeded):
            await late
        assert sum(items for _, items in bench.recorder.rejections) == 2
        bench.double.gate.set()
        await blocked

    with_bench(scenario)
