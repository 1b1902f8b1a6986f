"""Continuous batching with decodings that need no model: a sentence takes as many steps as its first token says."""

import asyncio
import contextlib
import threading
import time

import pytest

from models import NativeError
from models.decoding.beam_search import Hypothesis, SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from service.engine.batcher import DeadlineExceeded, Stopped
from service.engine.continuous_batching import ContinuousBatcher
from service.engine.fairness import SINGLE_FLOW, Flow
from service.engine.queue import Limits, QueueFull

HANGS = 6.0
FOREVER = 1_000_000


class Countdown:
    """A decoding that finishes a sentence `(n, ...)` in its n-th step; `(0, ...)` breaks it."""

    def __init__(self, kitchen, beam_size):
        self.kitchen, self.beam_size, self.left = kitchen, beam_size, {}

    def __len__(self):
        return len(self.left)

    def add(self, sources, searches):
        for (steps, *_), (key, _, max_tokens) in zip(sources, searches, strict=True):
            self.kitchen.max_tokens.append(max_tokens)
            self.left[key] = steps
        self.kitchen.joined.append((self.beam_size, [steps for steps, *_ in sources]))

    def reserved_bytes(self, joining=()):
        return self.beam_size * (len(self.left) + len(joining))

    def cancel(self, keys):
        self.kitchen.cancelled += len([self.left.pop(key) for key in keys if key in self.left])

    def step(self):
        if not self.left:
            return []
        self.kitchen.take_step(self)
        if self.kitchen.breaks or 0 in self.left.values():
            raise ArithmeticError("bad luck")
        self.left = {key: steps - 1 for key, steps in self.left.items()}
        done = [key for key, steps in self.left.items() if steps == 0]
        for key in done:
            del self.left[key]
        return [(key, [Hypothesis((1, 2), -1.0, -1.0), Hypothesis((1,), -2.0, -2.0)]) for key in done]


class Kitchen:
    """Makes decodings, keeps what happens to them, and holds their steps back while the gate is closed."""

    def __init__(self):
        self.made, self.joined, self.max_tokens, self.steps, self.cancelled = [], [], [], [], 0
        self.threads = set()
        self.breaks = False
        self.stepping, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def start(self, beam_size):
        self.made.append(Countdown(self, beam_size))
        return self.made[-1]

    def take_step(self, decoding):
        self.steps.append((decoding.beam_size, len(decoding)))
        self.threads.add(threading.get_ident())
        self.stepping.set()
        assert self.gate.wait(10)
        time.sleep(0.001)


class Recorder:
    """Records the events of a batcher."""

    def __init__(self):
        self.queues, self.batches, self.rejections, self.tokens, self.seconds = [], [], [], [], []

    def queued(self, items, tokens):
        self.queues.append((items, tokens))

    def batch(self, lengths, waits):
        self.batches.append((lengths, waits))

    def computed(self, seconds):
        self.seconds.append(seconds)

    def failed(self):
        raise AssertionError

    def rejected(self, reason, items):
        self.rejections.append((reason, items))

    def generated(self, tokens):
        self.tokens.append(tokens)


class Bench:
    """A worker on a kitchen, with a recorder."""

    def __init__(self, computations=None, **changes):
        values = {
            "max_batch_items": 4,
            "max_batch_tokens": 100,
            "batch_cost": 100,
            "max_delay": 0.0,
            "starvation_limit": 60.0,
            "max_wait": 60.0,
            "max_queue_items": 16,
            "max_queue_tokens": 100,
        }
        self.kitchen, self.recorder = Kitchen(), Recorder()
        self.batcher = ContinuousBatcher(
            [self.kitchen.start], Limits(**(values | changes)), self.recorder, computations=computations
        )

    def submit(self, *steps, beam_size=1, seconds=60.0, length=2, max_tokens=7, flow=SINGLE_FLOW):
        """Submits sentences of equal lengths, their ends included."""
        sources = [(count, *[1] * (length - 2)) for count in steps]
        queries = [SourceSequence(source, beam_size, SearchOptions(), max_tokens) for source in sources]
        deadline = time.monotonic() + seconds
        return asyncio.create_task(self.batcher.submit(str(beam_size), queries, deadline, flow=flow))

    async def hold(self, *steps, **options):
        """Submits sentences and closes the gate in their first step."""
        self.kitchen.gate.clear()
        self.kitchen.stepping.clear()
        task = self.submit(*steps, **options)
        assert await asyncio.to_thread(self.kitchen.stepping.wait, 10)
        return task


def with_bench(scenario, **changes):
    """Runs a scenario on a started worker; nothing may hang."""

    async def run():
        bench = Bench(**changes)
        bench.batcher.start()
        try:
            async with asyncio.timeout(HANGS):
                await scenario(bench)
        finally:
            bench.kitchen.gate.set()
            async with asyncio.timeout(HANGS):
                await bench.batcher.stop()
        assert not any(map(len, bench.kitchen.made[-1:])), "something was left running"

    asyncio.run(run())


async def is_served(bench):
    results, _ = await bench.submit(2)
    return [[each.tokens for each in hypotheses] for hypotheses in results] == [[(1, 2), (1,)]]


def test_a_sentence_takes_its_steps():
    async def scenario(bench):
        assert await is_served(bench)
        assert (bench.kitchen.joined, bench.kitchen.max_tokens) == ([(1, [2])], [7])
        assert bench.kitchen.steps == [(1, 1)] * 2
        assert threading.get_ident() not in bench.kitchen.threads

    with_bench(scenario)


def test_a_request_without_sentences_is_answered_at_once():
    async def scenario(bench):
        results, timing = await bench.submit()
        assert (results, timing.queue, timing.inference) == ([], 0.0, 0.0)
        assert bench.kitchen.made == []
        await bench.submit(1)

    with_bench(scenario)


def test_sentences_join_what_runs_and_leave_when_they_are_done():
    async def scenario(bench):
        long = await bench.hold(5)
        short = bench.submit(1, 2)
        await asyncio.sleep(0)
        bench.kitchen.gate.set()
        await short
        assert not long.done()
        await long
        assert bench.kitchen.joined == [(1, [5]), (1, [1, 2])]
        assert [count for _, count in bench.kitchen.steps] == [1, 3, 2, 1, 1]

    with_bench(scenario)


def test_no_more_sentences_run_than_the_limit_allows():
    async def scenario(bench):
        results, _ = await bench.submit(3, 1, 2, 2, 1, 3, 1, 1, 2)
        assert len(results) == 9
        assert max(count for _, count in bench.kitchen.steps) == 4
        assert len(bench.kitchen.steps) < 8

    with_bench(scenario)


def test_two_hundred_requests_get_their_own_results():
    async def scenario(bench):
        tasks = [bench.submit(*[1 + number % 4] * (number % 3)) for number in range(200)]
        assert [len((await task)[0]) for task in tasks] == [number % 3 for number in range(200)]

    with_bench(scenario, max_queue_items=400, max_queue_tokens=800)


def test_beam_sizes_take_their_steps_in_turn():
    async def scenario(bench):
        first = await bench.hold(4, beam_size=1)
        others = [bench.submit(2, beam_size=5), bench.submit(2, 2, beam_size=2)]
        await asyncio.sleep(0)
        bench.kitchen.gate.set()
        await asyncio.gather(first, *others)
        assert bench.kitchen.joined == [(1, [4]), (5, [2]), (2, [2, 2])]
        assert bench.kitchen.steps == [(1, 1), (1, 1), (5, 1), (1, 1), (5, 1), (2, 2), (1, 1), (2, 2)]
        await bench.submit(1, beam_size=5)

    with_bench(scenario)


def test_sentences_of_a_key_that_floods_the_queue_take_steps_while_no_others_do():
    async def scenario(bench):
        other = await bench.hold(6, flow=Flow("other"))
        flood = bench.submit(*[3] * 9, flow=Flow("flood"))
        await asyncio.sleep(0)
        bench.kitchen.gate.set()
        await asyncio.gather(other, flood)
        # Two of it have half of the places before it has had its share; the next two wait until the other one is done.
        assert bench.kitchen.steps[:9] == [(1, 1), *[(1, 3)] * 3, *[(1, 1)] * 2, *[(1, 2)] * 3]

    with_bench(scenario)


def test_a_deadline_that_passes_in_the_queue():
    async def scenario(bench):
        running = await bench.hold(2, 2, 2, 2)
        late = bench.submit(FOREVER, seconds=0.01)
        await asyncio.sleep(0.05)
        bench.kitchen.gate.set()
        with pytest.raises(DeadlineExceeded):
            await late
        await running
        assert bench.kitchen.joined == [(1, [2, 2, 2, 2])]
        assert bench.recorder.rejections == [("expired", 1)]

    with_bench(scenario)


def test_a_deadline_in_the_past_takes_no_step():
    async def scenario(bench):
        with pytest.raises(DeadlineExceeded):
            await bench.submit(1, seconds=-1)
        assert bench.kitchen.steps == []
        assert await is_served(bench)

    with_bench(scenario)


def test_a_deadline_that_passes_while_running_takes_the_sentence_out():
    async def scenario(bench):
        late, fine = bench.submit(FOREVER, FOREVER, seconds=0.1), bench.submit(300)
        with pytest.raises(DeadlineExceeded):
            await late
        assert not fine.done()
        assert bench.recorder.rejections == [("expired", 2)]
        await fine
        assert bench.kitchen.cancelled == 2
        assert bench.kitchen.steps[-1] == (1, 1)

    with_bench(scenario)


def test_a_cancelled_request_leaves_the_decoding():
    async def scenario(bench):
        cancelled = await bench.hold(FOREVER, FOREVER)
        fine = bench.submit(3)
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        bench.kitchen.gate.set()
        await fine
        assert bench.kitchen.cancelled == 2
        assert bench.recorder.rejections == [("cancelled", 2)]

    with_bench(scenario)


def test_the_last_sentence_that_is_cancelled_leaves_nothing_behind():
    async def scenario(bench):
        cancelled = await bench.hold(FOREVER)
        cancelled.cancel()
        bench.kitchen.gate.set()
        with contextlib.suppress(asyncio.CancelledError):
            await cancelled
        while not bench.kitchen.cancelled:
            await asyncio.sleep(0.001)
        taken = len(bench.kitchen.steps)
        await asyncio.sleep(0.02)
        assert len(bench.kitchen.steps) == taken
        assert await is_served(bench)

    with_bench(scenario)


def test_an_error_reaches_the_running_sequences_only():
    async def scenario(bench):
        running = [await bench.hold(5), bench.submit(9, beam_size=3), bench.submit(0)]
        await asyncio.sleep(0)
        bench.kitchen.gate.set()
        for task in running:
            with pytest.raises(ArithmeticError, match="bad luck"):
                await task
        assert await is_served(bench)
        assert bench.recorder.tokens == [5]

    with_bench(scenario)


def test_an_error_takes_the_rest_of_its_request_along():
    async def scenario(bench):
        with pytest.raises(ArithmeticError):
            await bench.submit(0, FOREVER, FOREVER)
        assert await is_served(bench)
        assert bench.recorder.queues[-1] == (0, 0)

    with_bench(scenario, max_batch_items=1)


def test_a_full_queue_refuses_at_once():
    async def scenario(bench):
        running = await bench.hold(2)
        waiting = bench.submit(1, 1)
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as caught:
            await bench.submit(1)
        assert not caught.value.never
        assert bench.recorder.rejections == [("overloaded", 1)]
        bench.kitchen.gate.set()
        await asyncio.gather(running, waiting)
        assert await is_served(bench)

    with_bench(scenario, max_queue_items=2)


def test_stopping_finishes_what_was_accepted_and_refuses_the_rest():
    async def scenario(bench):
        running = await bench.hold(3)
        waiting = bench.submit(2, beam_size=4)
        await asyncio.sleep(0)
        stopping = asyncio.create_task(bench.batcher.stop())
        await asyncio.sleep(0)
        with pytest.raises(Stopped):
            await bench.submit(1)
        assert not stopping.done()
        bench.kitchen.gate.set()
        await stopping
        assert [len((await task)[0]) for task in (running, waiting)] == [1, 1]
        await bench.batcher.stop()

    with_bench(scenario)


def test_the_observer_hears_of_what_joins_waits_and_comes_out():
    async def scenario(bench):
        running = await bench.hold(2)
        waiting = bench.submit(1, 1)
        await asyncio.sleep(0.02)
        assert bench.recorder.queues[-1] == (2, 4)
        bench.kitchen.gate.set()
        (_, ran), (_, waited) = await running, await waiting
        assert [lengths for lengths, _ in bench.recorder.batches] == [[2], [2, 2]]
        assert bench.recorder.seconds == pytest.approx([ran.inference, waited.inference, waited.inference], abs=0.01)
        assert all(0.02 <= wait < HANGS for wait in bench.recorder.batches[1][1])
        assert waited.queue >= 0.02 > ran.queue
        assert ran.inference >= 0.02 > waited.inference
        assert bench.recorder.tokens == [5, 5, 5]  # two hypotheses of two and one tokens, and their ends
        assert bench.recorder.queues[-1] == (0, 0)

    with_bench(scenario)


def test_a_panic_of_native_code_reaches_the_running_sequences_only(monkeypatch):
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})

    def step(decoding):
        raise panic("out of luck")

    async def scenario(bench):
        with monkeypatch.context() as patch:
            patch.setattr(bench.kitchen, "take_step", step)
            with pytest.raises(NativeError, match="the model failed: PanicException: out of luck"):
                await bench.submit(3)
        assert await is_served(bench)

    with_bench(scenario)
