"""Tests of the worker with operations that need no model: they double numbers, block or fail."""

import asyncio
import contextlib
import itertools
import math
import threading
import time
from dataclasses import dataclass

import pytest

from service.engine.queue import Limits, QueueFull
from service.engine.worker import BatchWorker, DeadlineExceeded, EngineFailed, Stopped

HANGS = 6.0


@dataclass
class Query:
    value: int
    length: int = 1
    result_items: int = 0


class Double:
    """Doubles values, once `gate` is open; keeps the batches it saw."""

    def __init__(self):
        self.batches = []
        self.threads = set()
        self.running, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def __call__(self, queries):
        self.batches.append([query.value for query in queries])
        self.threads.add(threading.get_ident())
        self.running.set()
        assert self.gate.wait(10)
        return [2 * query.value for query in queries]


class Recorder:
    """Keeps what a worker reports."""

    def __init__(self):
        self.queues, self.batches, self.rejections, self.failures = [], [], [], 0

    def queued(self, items, tokens):
        self.queues.append((items, tokens))

    def batch(self, lengths, waits):
        self.batches.append((lengths, waits))

    def computed(self, seconds):
        self.batches[-1] += (seconds,)

    def failed(self):
        self.failures += 1

    def rejected(self, reason, items):
        self.rejections.append((reason, items))


def limits(**changes):
    values = {
        "max_batch_items": 8,
        "max_batch_tokens": 100,
        "batch_cost": 100,
        "max_delay": 0.0,
        "max_overtaken": 60.0,
        "max_wait": 60.0,
        "max_queue_items": 16,
        "max_queue_tokens": 100,
    }
    return Limits(**(values | changes))


class Bench:
    """A worker with a doubling operation, one that fails, and a recorder."""

    def __init__(self, operations=None, **changes):
        self.double, self.recorder = Double(), Recorder()
        table = {"double": self.double, "fail": fail, **(operations or {})}
        self.worker = BatchWorker([table], limits(**changes), self.recorder)

    def submit(self, *values, operation="double", seconds=60.0, length=1):
        queries = [Query(value, length) for value in values]
        return asyncio.create_task(self.worker.submit(operation, queries, time.monotonic() + seconds))

    async def block(self):
        """Keeps the model thread busy with the value 0 until the gate opens."""
        self.double.gate.clear()
        self.double.running.clear()
        task = self.submit(0)
        assert await asyncio.to_thread(self.double.running.wait, 10)
        return task


def fail(queries):
    raise ArithmeticError("bad luck")


def with_bench(scenario, **options):
    """Runs a scenario on a started worker; nothing may hang."""

    async def run():
        bench = Bench(**options)
        bench.worker.start()
        try:
            async with asyncio.timeout(HANGS):
                await scenario(bench)
        finally:
            bench.double.gate.set()
            async with asyncio.timeout(HANGS):
                await bench.worker.stop()

    asyncio.run(run())


async def values(task):
    results, _ = await task
    return results


def test_one_request_gets_its_results_in_order():
    async def scenario(bench):
        assert await values(bench.submit(3, 1, 2)) == [6, 2, 4]
        assert bench.double.batches == [[3, 1, 2]]

    with_bench(scenario)


def test_concurrent_requests_share_a_batch_and_get_their_own_results():
    async def scenario(bench):
        blocked = await bench.block()
        tasks = [bench.submit(value, 10 * value) for value in (1, 2, 3)]
        await asyncio.sleep(0)
        bench.double.gate.set()
        assert [await values(task) for task in tasks] == [[2, 20], [4, 40], [6, 60]]
        assert await values(blocked) == [0]
        assert bench.double.batches == [[0], [1, 10, 2, 20, 3, 30]]

    with_bench(scenario)


def test_two_hundred_requests_get_their_own_results():
    async def scenario(bench):
        tasks = [bench.submit(value) for value in range(200)]
        assert [await values(task) for task in tasks] == [[2 * value] for value in range(200)]
        assert sorted(itertools.chain(*bench.double.batches)) == list(range(200))
        assert max(map(len, bench.double.batches)) <= 8
        assert len(bench.double.batches) < 200

    with_bench(scenario, max_queue_items=200, max_queue_tokens=200)


def test_a_request_may_be_larger_than_a_batch():
    async def scenario(bench):
        assert await values(bench.submit(1, 2, 3, 4, 5)) == [2, 4, 6, 8, 10]
        assert [len(batch) for batch in bench.double.batches] == [2, 2, 1]

    with_bench(scenario, max_batch_items=2)


def test_everything_runs_on_one_thread_that_is_not_the_loop():
    async def scenario(bench):
        for value in range(5):
            await bench.submit(value)
        assert len(bench.double.threads) == 1
        assert threading.get_ident() not in bench.double.threads

    with_bench(scenario)


def test_operations_never_mix():
    async def scenario(bench):
        await bench.block()
        tasks = [bench.submit(1), bench.submit(2, operation="negate"), bench.submit(3)]
        await asyncio.sleep(0)
        bench.double.gate.set()
        assert [await values(task) for task in tasks] == [[2], [-2], [6]]
        assert bench.double.batches == [[0], [1, 3]]

    with_bench(scenario, operations={"negate": lambda queries: [-query.value for query in queries]})


def test_an_exception_reaches_its_batch_and_nobody_else():
    async def scenario(bench):
        await bench.block()
        broken = [bench.submit(1, operation="fail"), bench.submit(2, 3, operation="fail")]
        fine = bench.submit(4)
        await asyncio.sleep(0)
        bench.double.gate.set()
        for task in broken:
            with pytest.raises(ArithmeticError, match="bad luck"):
                await task
        assert await values(fine) == [8]
        assert await values(bench.submit(5)) == [10]

    with_bench(scenario)


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_results_reaches_its_batch_and_nobody_else(count):
    async def scenario(bench):
        with pytest.raises(ValueError, match=r"zip|result"):
            await bench.submit(1, 2, operation="odd")
        assert await values(bench.submit(5)) == [10]

    with_bench(scenario, operations={"odd": lambda queries: [0] * count})


def test_an_unknown_operation_reaches_its_caller_and_nobody_else():
    async def scenario(bench):
        with pytest.raises(KeyError, match="translate"):
            await bench.submit(1, operation="translate")
        assert await values(bench.submit(5)) == [10]

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

        bench.worker._queue.next_batch = broken
        bench.double.gate.set()
        assert await values(blocking) == [0]
        for task in (waiting, bench.submit(3)):
            with pytest.raises(EngineFailed):
                await task
        assert isinstance(bench.worker.failure, ArithmeticError)
        assert bench.recorder.failures == 1

    with_bench(scenario)
    assert "a bug in the policy" in caplog.text


def test_an_idle_engine_starts_before_the_deadline_although_the_delay_is_longer():
    async def scenario(bench):
        assert await values(bench.submit(1, seconds=0.4)) == [2]

    with_bench(scenario, max_delay=5.0)


def test_what_its_own_deadline_cannot_meet_is_refused_and_what_it_can_is_not():
    async def scenario(bench):
        bench.worker._drain.record(10, 1.0)  # a tenth of a second a token
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
        with bench.worker.preparing(15, math.inf):
            with pytest.raises(QueueFull), bench.worker.preparing(2, math.inf):
                pass
            assert await values(bench.submit(1)) == [2]
        with bench.worker.preparing(16, math.inf):
            pass

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


def test_cancelling_what_is_computed_harms_nobody():
    async def scenario(bench):
        blocked = await bench.block()
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        bench.double.gate.set()
        assert await values(bench.submit(1)) == [2]

    with_bench(scenario)


def test_one_failed_batch_takes_the_rest_of_its_request_out_of_the_queue():
    async def scenario(bench):
        with pytest.raises(ArithmeticError):
            await bench.submit(1, 2, 3, operation="fail")
        assert bench.recorder.queues[-1] == (0, 0)

    with_bench(scenario, max_batch_items=1)


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


def test_a_refusal_says_how_long_what_waits_will_take():
    async def scenario(bench):
        with pytest.raises(QueueFull) as caught:
            await bench.submit(*range(20))
        assert caught.value.retry_after == 0.0  # nothing was measured yet
        await values(bench.submit(1))
        bench.worker._drain.record(10**6, 10**7)
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
        bench.worker._drain.record(10**6, 10**6)  # a token a second
        await bench.block()
        waiting = bench.submit(1, length=5)
        await asyncio.sleep(0)
        bench.worker.admit(15)  # 5 seconds are fine
        too_many = bench.submit(2)
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as early:
            bench.worker.admit(1)
        with pytest.raises(QueueFull) as late:
            await bench.submit(3)
        for caught in (early, late):
            assert (caught.value.never, round(caught.value.retry_after, 3)) == (False, 6.0)
        assert bench.recorder.rejections == [("overloaded", 1)] * 2
        bench.double.gate.set()
        assert await values(waiting) + await values(too_many) == [2, 4]

    with_bench(scenario, max_wait=5.5)


def test_several_batches_run_at_once_and_all_are_finished_before_the_end():
    entered, both = [], threading.Barrier(2, timeout=10)

    def meet(queries):
        entered.append([query.value for query in queries])
        both.wait()  # passes only where two batches run at once
        return [-query.value for query in queries]

    async def run():
        bench = Bench(operations={"meet": meet}, max_batch_items=1)
        bench.worker = BatchWorker([{"meet": meet}], limits(max_batch_items=1), bench.recorder, parallel_batches=2)
        bench.worker.start()
        tasks = [bench.submit(value, operation="meet") for value in (1, 2, 3, 4)]
        await asyncio.sleep(0)
        async with asyncio.timeout(HANGS):
            await bench.worker.stop()  # what came before is computed
            assert [await values(task) for task in tasks] == [[-1], [-2], [-3], [-4]]
        assert sorted(entered) == [[1], [2], [3], [4]]

    asyncio.run(run())


def test_devices_take_batches_from_one_queue():
    both = threading.Barrier(2, timeout=10)
    seen = {"first": [], "second": []}

    def on(device):
        def meet(queries):
            seen[device].append([query.value for query in queries])
            both.wait()  # passes only where both devices run
            return [-query.value for query in queries]

        return {"meet": meet}

    async def run():
        bench = Bench(operations={})
        bench.worker = BatchWorker([on("first"), on("second")], limits(max_batch_items=1), bench.recorder)
        bench.worker.start()
        tasks = [bench.submit(value, operation="meet") for value in (1, 2, 3, 4)]
        async with asyncio.timeout(HANGS):
            assert [await values(task) for task in tasks] == [[-1], [-2], [-3], [-4]]
            await bench.worker.stop()
        assert {len(batches) for batches in seen.values()} == {2}

    asyncio.run(run())


def test_a_broken_device_does_not_take_all_there_is():
    def break_down(queries):
        raise ArithmeticError("the device is gone")

    def compute(queries):
        time.sleep(0.01)
        return [-query.value for query in queries]

    async def run():
        bench = Bench(operations={})
        bench.worker = BatchWorker([{"meet": break_down}, {"meet": compute}], limits(max_batch_items=1), bench.recorder)
        bench.worker.start()
        tasks = [bench.submit(value, operation="meet") for value in range(8)]
        async with asyncio.timeout(HANGS):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            await bench.worker.stop()
        assert sum(isinstance(answer, ArithmeticError) for answer in answers) == 1

    asyncio.run(run())


def test_no_more_batches_run_at_once_than_allowed():
    async def scenario(bench):
        await bench.block()
        waiting = bench.submit(1)
        await asyncio.sleep(0.05)
        assert bench.double.batches == [[0]]
        bench.double.gate.set()
        assert await values(waiting) == [2]

    with_bench(scenario)


def test_an_observer_that_fails_keeps_no_answer_back(caplog):
    async def scenario(bench):
        bench.recorder.batch = fail
        assert await values(bench.submit(1)) == [2]
        assert await values(bench.submit(2)) == [4]

    with_bench(scenario)
    assert "and then: " in caplog.text


def test_a_tracer_sees_the_requests_of_each_batch():
    class Tracer:
        def __init__(self):
            self.seen = []

        def context(self):
            return asyncio.current_task().get_name()

        def batch(self, *batch):
            self.seen.append(batch)

    async def run():
        bench, tracer = Bench(), Tracer()
        bench.worker = BatchWorker([{"double": bench.double}], limits(), bench.recorder, tracer=tracer)
        bench.worker.start()
        tasks = [bench.submit(1, 2), bench.submit(3)]
        assert [await values(task) for task in tasks] == [[2, 4], [6]]
        await bench.worker.stop()
        ((number, lengths, contexts, seconds),) = tracer.seen
        names = [task.get_name() for task in tasks]
        assert (number, lengths, contexts) == (1, [1, 1, 1], [names[0], names[0], names[1]])
        assert seconds >= 0

    asyncio.run(run())


def test_a_request_that_never_fits_is_said_to():
    async def scenario(bench):
        with pytest.raises(QueueFull) as caught:
            await bench.submit(1, 2, 3)
        assert caught.value.never
        assert bench.double.batches == []

    with_bench(scenario, max_queue_items=2)


def test_the_first_waits_for_company():
    async def scenario(bench):
        first = bench.submit(1)
        await asyncio.sleep(0.1)
        second = bench.submit(2)
        assert await values(first) + await values(second) == [2, 4]
        assert bench.double.batches == [[1, 2]]

    with_bench(scenario, max_delay=1.0)


def test_a_full_batch_waits_for_nobody():
    async def scenario(bench):
        assert await values(bench.submit(1, 2)) == [2, 4]

    with_bench(scenario, max_delay=60.0, max_batch_items=2)


def test_nobody_waits_for_company_beyond_the_deadline():
    async def scenario(bench):
        with contextlib.suppress(DeadlineExceeded):
            assert await values(bench.submit(1, seconds=0.2)) == [2]

    with_bench(scenario, max_delay=60.0)


def test_stopping_computes_what_was_accepted_and_refuses_the_rest():
    async def scenario(bench):
        blocked = await bench.block()
        waiting = bench.submit(1)
        await asyncio.sleep(0)
        stopping = asyncio.create_task(bench.worker.stop())
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


def test_stopping_does_not_wait_for_company():
    async def scenario(bench):
        task = bench.submit(1)
        await asyncio.sleep(0)
        await bench.worker.stop()
        assert await values(task) == [2]

    with_bench(scenario, max_delay=60.0)


def test_stopping_an_idle_worker_twice_is_fine():
    async def scenario(bench):
        await bench.worker.stop()
        await bench.worker.stop()

    with_bench(scenario)


def test_the_observer_hears_of_batches_waits_and_the_queue():
    async def scenario(bench):
        await bench.block()
        task = bench.submit(1, 2, length=5)
        await asyncio.sleep(0.02)
        assert bench.recorder.queues[-1] == (2, 10)
        bench.double.gate.set()
        await task
        (first, _, _), (lengths, waits, seconds) = bench.recorder.batches
        assert (first, lengths) == ([1], [5, 5])
        assert all(0.02 <= wait < HANGS for wait in waits)
        assert 0 <= seconds < HANGS
        assert bench.recorder.queues[-1] == (0, 0)
        assert bench.recorder.rejections == []

    with_bench(scenario)


def test_timing_tells_waiting_from_computing():
    async def scenario(bench):
        bench.double.gate.clear()
        first = bench.submit(1)
        await asyncio.to_thread(bench.double.running.wait, 10)
        second = bench.submit(2)
        await asyncio.sleep(0.05)
        bench.double.gate.set()
        (_, computed), (_, waited) = await first, await second
        assert computed.inference >= 0.05 > computed.queue
        assert waited.queue >= 0.05 > waited.inference

    with_bench(scenario)
