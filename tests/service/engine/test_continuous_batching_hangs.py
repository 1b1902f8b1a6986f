"""Decoding steps whose requests are gone, that take too long, or that do not return."""

import asyncio
import threading

import pytest

from models.backend.interruption import interruptible
from service.engine.batcher import DeadlineExceeded
from service.engine.computations import Computations, ComputationTimeout, ModelStuck
from tests.service.engine.test_continuous_batching import is_served, with_bench


class Graph:
    """Steps that are interrupted as those of a graph are; the first step of a sentence of 99 steps never ends."""

    def __init__(self, kitchen):
        self.kitchen, self.told = kitchen, threading.Event()

    def take_step(self, decoding):
        with interruptible(self.told.set):
            if 99 in decoding.left.values():
                self.kitchen.stepping.set()
                assert self.told.wait(30)
                raise ArithmeticError("terminate flag")


def test_a_step_that_nobody_awaits_is_interrupted_and_the_next_sentence_is_decoded():
    async def scenario(bench):
        bench.kitchen.take_step = Graph(bench.kitchen).take_step
        with pytest.raises(DeadlineExceeded):
            await bench.submit(99, seconds=0.3)
        assert await is_served(bench)

    with_bench(scenario)


def test_a_step_that_takes_too_long_is_interrupted():
    async def scenario(bench):
        bench.kitchen.take_step = Graph(bench.kitchen).take_step
        with pytest.raises(ComputationTimeout):
            await bench.submit(99)
        assert await is_served(bench)

    with_bench(scenario, computations=Computations(0.2))


def test_a_step_that_does_not_return_fails_what_is_decoded_and_queued_until_it_does():
    async def scenario(bench):
        held = await bench.hold(5)
        queued = bench.submit(3)
        await asyncio.sleep(0.02)
        bench.batcher.computations._give_up(*bench.batcher.computations._running)
        for task in (held, queued, bench.submit(1)):
            with pytest.raises(ModelStuck):
                await task
        bench.kitchen.gate.set()
        while not bench.batcher.working:
            await asyncio.sleep(0.01)
        assert await is_served(bench)

    with_bench(scenario)
