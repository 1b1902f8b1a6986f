"""Tests of dynamic batching with operations that need no model."""

import asyncio
import itertools
import threading
import time

import pytest

from models import NativeError
from models.backend.interruption import interruptible
from service.engine.batcher import DeadlineExceeded
from service.engine.dynamic_batching import DynamicBatcher
from tests.service.engine.doubling import HANGS, Bench, fail, limits, values, with_bench


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


def test_operations_never_mix():
    async def scenario(bench):
        await bench.block()
        tasks = [bench.submit(1), bench.submit(2, operation="negate"), bench.submit(3)]
        await asyncio.sleep(0)
        bench.double.gate.set()
        assert [await values(task) for task in tasks] == [[2], [-2], [6]]
        assert bench.double.batches == [[0], [1, 3]]

    with_bench(scenario, operations={"negate": lambda queries: [-query.value for query in queries]})


def test_an_exception_reaches_its_batch_only():
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
def test_a_wrong_number_of_results_reaches_its_batch_only(count):
    async def scenario(bench):
        with pytest.raises(ValueError, match=r"zip|result"):
            await bench.submit(1, 2, operation="odd")
        assert await values(bench.submit(5)) == [10]

    with_bench(scenario, operations={"odd": lambda queries: [0] * count})


def test_an_unknown_operation_reaches_its_caller_only():
    async def scenario(bench):
        with pytest.raises(KeyError, match="translate"):
            await bench.submit(1, operation="translate")
        assert await values(bench.submit(5)) == [10]

    with_bench(scenario)


def test_an_idle_engine_starts_before_the_deadline_although_the_delay_is_longer():
    async def scenario(bench):
        assert await values(bench.submit(1, seconds=0.4)) == [2]

    with_bench(scenario, max_delay=5.0)


def test_one_failed_batch_takes_the_rest_of_its_request_out_of_the_queue():
    async def scenario(bench):
        with pytest.raises(ArithmeticError):
            await bench.submit(1, 2, 3, operation="fail")
        assert bench.recorder.queues[-1] == (0, 0)

    with_bench(scenario, max_batch_items=1)


def test_several_batches_run_at_once_and_all_are_finished_before_the_end():
    entered, both = [], threading.Barrier(2, timeout=10)

    def meet(queries):
        entered.append([query.value for query in queries])
        both.wait()  # passes only where two batches run at once
        return [-query.value for query in queries]

    async def run():
        bench = Bench(operations={"meet": meet}, max_batch_items=1)
        bench.batcher = DynamicBatcher([{"meet": meet}], limits(max_batch_items=1), bench.recorder, parallel_batches=2)
        bench.batcher.start()
        tasks = [bench.submit(value, operation="meet") for value in (1, 2, 3, 4)]
        await asyncio.sleep(0)
        async with asyncio.timeout(HANGS):
            await bench.batcher.stop()  # requests submitted before are computed
            assert [await values(task) for task in tasks] == [[-1], [-2], [-3], [-4]]
        assert sorted(entered) == [[1], [2], [3], [4]]

    asyncio.run(run())


def test_of_what_is_computed_alone_one_batch_runs_beside_others():
    async def scenario(bench):
        first = await bench.block()
        rest = [bench.submit(value) for value in range(1, 11)]
        assert await values(bench.submit(4, 5, operation="negate")) == [-4, -5]
        await asyncio.sleep(0.02)
        assert bench.double.batches == [[0]]
        rest[4].cancel()
        bench.double.gate.set()
        assert [await values(each) for each in (first, *rest[:4], *rest[5:])] == [
            [2 * value] for value in range(11) if value != 5
        ]
        assert bench.double.batches == [[0], [1, 2, 3, 4, 6, 7, 8, 9], [10]]
        assert bench.double.most == 1

    with_bench(
        scenario,
        operations={"negate": lambda queries: [-query.value for query in queries]},
        parallel_batches=3,
        alone={"double"},
    )


def test_what_waits_for_a_batch_that_is_computed_alone_is_computed_before_the_end():
    async def run():
        bench = Bench(parallel_batches=2, alone={"double"})
        bench.batcher.start()
        tasks = [await bench.block(), bench.submit(1), bench.submit(2)]
        await asyncio.sleep(0.02)
        stopping = asyncio.create_task(bench.batcher.stop())
        await asyncio.sleep(0.02)
        bench.double.gate.set()
        async with asyncio.timeout(HANGS):
            await stopping
            assert [await values(task) for task in tasks] == [[0], [2], [4]]
        assert bench.double.batches == [[0], [1, 2]]

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
        bench.batcher = DynamicBatcher([on("first"), on("second")], limits(max_batch_items=1), bench.recorder)
        bench.batcher.start()
        tasks = [bench.submit(value, operation="meet") for value in (1, 2, 3, 4)]
        async with asyncio.timeout(HANGS):
            assert [await values(task) for task in tasks] == [[-1], [-2], [-3], [-4]]
            await bench.batcher.stop()
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
        bench.batcher = DynamicBatcher(
            [{"meet": break_down}, {"meet": compute}], limits(max_batch_items=1), bench.recorder
        )
        bench.batcher.start()
        tasks = [bench.submit(value, operation="meet") for value in range(8)]
        async with asyncio.timeout(HANGS):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            await bench.batcher.stop()
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
    assert "an error after a batch was computed: " in caplog.text


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
        bench.batcher = DynamicBatcher([{"double": bench.double}], limits(), bench.recorder, tracer=tracer)
        bench.batcher.start()
        tasks = [bench.submit(1, 2), bench.submit(3)]
        assert [await values(task) for task in tasks] == [[2, 4], [6]]
        await bench.batcher.stop()
        ((number, lengths, contexts, seconds),) = tracer.seen
        names = [task.get_name() for task in tasks]
        assert (number, lengths, contexts) == (1, [1, 1, 1], [names[0], names[0], names[1]])
        assert seconds >= 0

    asyncio.run(run())


def test_the_first_request_waits_up_to_the_delay():
    async def scenario(bench):
        first = bench.submit(1)
        await asyncio.sleep(0.1)
        second = bench.submit(2)
        assert await values(first) + await values(second) == [2, 4]
        assert bench.double.batches == [[1, 2]]

    with_bench(scenario, max_delay=1.0)


def test_a_full_batch_starts_at_once():
    async def scenario(bench):
        assert await values(bench.submit(1, 2)) == [2, 4]

    with_bench(scenario, max_delay=60.0, max_batch_items=2)


def test_stopping_does_not_wait_for_the_delay():
    async def scenario(bench):
        task = bench.submit(1)
        await asyncio.sleep(0)
        await bench.batcher.stop()
        assert await values(task) == [2]

    with_bench(scenario, max_delay=60.0)


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


def test_a_panic_of_native_code_reaches_its_batch_only():
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})

    def panicking(queries):
        raise panic("out of luck")

    async def scenario(bench):
        with pytest.raises(NativeError, match="the model failed: PanicException: out of luck"):
            await bench.submit(1, operation="panicking")
        assert await values(bench.submit(5)) == [10]

    with_bench(scenario, operations={"panicking": panicking})


class Graph:
    """An operation that computes the value 99 until it is interrupted."""

    def __init__(self):
        self.told = threading.Event()

    def __call__(self, queries):
        with interruptible(self.told.set):
            if 99 in [query.value for query in queries]:
                assert self.told.wait(30)
                raise ArithmeticError("terminate flag")
            return [-query.value for query in queries]


def test_a_batch_that_nobody_awaits_is_interrupted_and_the_next_one_is_computed():
    async def scenario(bench):
        hurried = bench.submit(99, operation="negate", seconds=0.3)
        cancelled = bench.submit(99, operation="negate")
        await asyncio.sleep(0.05)
        cancelled.cancel()
        with pytest.raises(DeadlineExceeded):
            await hurried
        assert await values(bench.submit(1, operation="negate")) == [-1]

    with_bench(scenario, operations={"negate": Graph()})


def test_a_batch_that_one_request_awaits_is_finished_for_it():
    async def scenario(bench):
        blocked = await bench.block()
        hurried, patient = bench.submit(1, seconds=0.3), bench.submit(2)
        bench.double.gate.set()
        await blocked
        bench.double.gate.clear()
        with pytest.raises(DeadlineExceeded):
            await hurried
        await asyncio.sleep(1.5)  # longer than the time between two checks
        bench.double.gate.set()
        assert await values(patient) == [4]

    with_bench(scenario)


def test_a_model_whose_batches_all_expire_learns_how_slow_it_is():
    async def scenario(bench):
        before = bench.batcher._drain.seconds(1)
        with pytest.raises(DeadlineExceeded):
            await bench.submit(99, operation="negate", seconds=0.3)
        while bench.batcher.computations._running:
            await asyncio.sleep(0.01)
        await bench.submit(1, operation="negate")
        assert bench.batcher._drain.seconds(1) > before

    with_bench(scenario, operations={"negate": Graph()})
