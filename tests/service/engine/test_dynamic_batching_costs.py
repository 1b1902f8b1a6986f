"""Tests of the measured costs of dynamic batching: how batches are formed, requests admitted, and costs corrected."""

import asyncio
import math
import threading
import time
from types import SimpleNamespace

import pytest

from service.engine.cost_model import CostModel, Sample, Terms
from service.engine.dynamic_batching import DynamicBatcher
from service.engine.queue import QueueFull
from tests.service.engine.doubling import HANGS, Query, Recorder, limits, with_bench


def measured(terms):
    """Return a cost model whose warm-up measured the terms."""
    shapes = [(items, longest) for items in (1, 8) for longest in (1, 32)]
    return CostModel([Sample(*shape, terms.seconds(*shape)) for shape in shapes])


@pytest.mark.parametrize(
    ("terms", "batches"),
    [
        (Terms(fixed=0.001, item=0.0, token=0.0001), [[1, 3], [2, 4]]),  # 10 tokens: lengths 9 and 1 do not mix
        (Terms(fixed=0.1, item=0.0, token=0.0001), [[1, 2, 3, 4]]),  # 1,000 tokens: a second batch costs more
    ],
)
def test_batches_are_split_by_their_measured_cost(terms, batches):
    async def scenario(bench):
        await bench.block()
        tasks = [bench.submit(value, length=9 if value % 2 else 1) for value in (1, 2, 3, 4)]
        await asyncio.sleep(0)
        bench.double.gate.set()
        await asyncio.gather(*tasks)
        assert [sorted(batch) for batch in bench.double.batches[1:]] == batches

    with_bench(scenario, costs=[{"double": measured(terms)}])


def test_requests_are_admitted_by_the_measured_cost_before_anything_was_served():
    async def scenario(bench):
        blocking = await bench.block()
        waiting = bench.submit(1, 2, 3, 4)  # half of a full batch, half a second
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as caught:
            await bench.submit(5, seconds=0.5)
        assert caught.value.retry_after == pytest.approx(0.5, rel=0.01)
        bench.batcher.admit(1, time.monotonic() + 2.0)
        bench.double.gate.set()
        await asyncio.gather(blocking, waiting)

    with_bench(scenario, costs=[{"double": measured(Terms(fixed=1.0, item=0.0, token=1e-6))}])


def test_served_batches_correct_the_costs():
    model = measured(Terms(fixed=1.0, item=0.0, token=0.001))

    async def scenario(bench):
        for value in range(64):
            await bench.submit(value)
        assert model.terms.seconds(1, 1) < 0.5

    with_bench(scenario, costs=[{"double": model}])


class Gates:
    """An operation that computes each value once its gate opens."""

    def __init__(self, values):
        self.entered, self.left = ({value: threading.Event() for value in values} for _ in range(2))

    def __call__(self, queries):
        for query in queries:
            self.entered[query.value].set()
            assert self.left[query.value].wait(10)
        return [query.value for query in queries]


class Recorded(CostModel):
    """A cost model with given terms that keeps its samples."""

    def __init__(self, terms):
        super().__init__()
        self.terms, self.samples = terms, []

    def record(self, sample):
        self.samples.append(sample)


def test_concurrent_batches_share_the_seconds_that_are_recorded(monkeypatch):
    """Two devices compute up to two batches each; the batches of lengths 3 and 5 share the first device."""
    gates = Gates([3, 4, 5])
    models = [Recorded(Terms(fixed=6.0, item=2.0, token=2.0)) for _ in range(2)]
    started = math.ceil(time.monotonic()) + 1000.0
    clock = SimpleNamespace(now=started)
    monkeypatch.setattr("service.engine.dynamic_batching.time", SimpleNamespace(monotonic=lambda: clock.now))

    async def run():
        batcher = DynamicBatcher(
            [{"wait": gates}] * 2,
            limits(max_batch_items=1),
            Recorder(),
            costs=[{"wait": model} for model in models],
            parallel_batches=2,
        )
        drained = []
        batcher._drain.record = lambda *recorded: drained.append(recorded)
        batcher.start()
        tasks = {}
        for value in (3, 4, 5):
            parts, deadline = [Query(value, length=value)], time.monotonic() + 600
            tasks[value] = asyncio.create_task(batcher.submit("wait", parts, deadline))
            assert await asyncio.to_thread(gates.entered[value].wait, 10)
        for value, seconds in ((3, 12.0), (5, 20.0), (4, 30.0)):
            clock.now = started + seconds
            gates.left[value].set()
            await tasks[value]
        await batcher.stop()
        # Half of the measured seconds, as there are two devices, by the batches that run on both.
        assert drained == [((6 + 2 + 2 * 3) / 2, 12 / 3), ((6 + 2 + 2 * 5) / 2, 20 / 2), ((6 + 2 + 2 * 4) / 2, 30)]

    asyncio.run(asyncio.wait_for(run(), HANGS))
    # By the batches that run on the device.
    assert [model.samples for model in models] == [[Sample(1, 3, 12 / 2), Sample(1, 5, 20)], [Sample(1, 4, 30)]]


@pytest.mark.parametrize(
    ("token", "batches"),
    [
        (0.002, [[3, 4]]),  # 2,000 tokens: it waits for as many requests as the last batch had results
        (0.008, [[3], [4]]),  # 500 tokens
    ],
)
def test_a_batch_waits_for_a_group_where_its_fixed_cost_is_large(token, batches):
    async def scenario(bench):
        await bench.submit(1, 2)
        first = bench.submit(3)
        await asyncio.sleep(0.1)
        second = bench.submit(4)
        await asyncio.gather(first, second)
        assert bench.double.batches[1:] == batches

    with_bench(scenario, costs=[{"double": measured(Terms(fixed=4.0, item=0.0, token=token))}])
