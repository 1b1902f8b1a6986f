"""A batcher whose operations need no model: they double numbers, block or fail."""

import asyncio
import threading
import time
from dataclasses import dataclass

from service.engine.computations import Computations
from service.engine.dynamic_batching import DynamicBatcher
from service.engine.queue import Limits

HANGS = 6.0


@dataclass
class Query:
    value: int
    length: int = 1
    result_items: int = 0


class Double:
    """Doubles values, once `gate` is open; keeps the batches it saw, and how many it saw at once at most."""

    def __init__(self):
        self.batches = []
        self.now = self.most = 0
        self.threads = set()
        self.running, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def __call__(self, queries):
        self.batches.append([query.value for query in queries])
        self.threads.add(threading.get_ident())
        self.now += 1
        self.most = max(self.most, self.now)
        self.running.set()
        assert self.gate.wait(10)
        self.now -= 1
        return [2 * query.value for query in queries]


class Recorder:
    """Keeps the events of a batcher."""

    def __init__(self):
        self.queues, self.batches, self.rejections, self.failures = [], [], [], 0
        self.timeouts = self.stuck = 0

    def queued(self, items, tokens):
        self.queues.append((items, tokens))

    def batch(self, lengths, waits):
        self.batches.append((lengths, waits))

    def computed(self, seconds):
        self.batches[-1] += (seconds,)

    def failed(self):
        self.failures += 1

    def computation_timed_out(self):
        self.timeouts += 1

    def stuck_computations(self, number):
        self.stuck = number

    def rejected(self, reason, items):
        self.rejections.append((reason, items))


def limits(**changes):
    values = {
        "max_batch_items": 8,
        "max_batch_tokens": 100,
        "batch_cost": 100,
        "max_delay": 0.0,
        "starvation_limit": 60.0,
        "max_wait": 60.0,
        "max_queue_items": 16,
        "max_queue_tokens": 100,
    }
    return Limits(**(values | changes))


class Bench:
    """A batcher with a doubling operation, one that fails, and a recorder."""

    def __init__(self, operations=None, costs=(), parallel_batches=1, alone=(), **changes):
        self.double, self.recorder = Double(), Recorder()
        table = {"double": self.double, "fail": fail, **(operations or {})}
        computations = Computations(observer=self.recorder)
        self.batcher = DynamicBatcher(
            [table],
            limits(**changes),
            self.recorder,
            costs=costs,
            parallel_batches=parallel_batches,
            alone=alone,
            computations=computations,
        )

    def submit(self, *values, operation="double", seconds=60.0, length=1):
        queries = [Query(value, length) for value in values]
        return asyncio.create_task(self.batcher.submit(operation, queries, time.monotonic() + seconds))

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
    """Runs a scenario on a started batcher; nothing may hang."""

    async def run():
        bench = Bench(**options)
        bench.batcher.start()
        try:
            async with asyncio.timeout(HANGS):
                await scenario(bench)
        finally:
            bench.double.gate.set()
            async with asyncio.timeout(HANGS):
                await bench.batcher.stop()

    asyncio.run(run())


async def values(task):
    results, _ = await task
    return results
