"""Tests of the outputs that a request waits for."""

import asyncio

import pytest

from service.engine.caller import Timing
from service.engine.waiting import Outputs, Waiting


def run(scenario, count):
    async def main():
        outputs = Outputs(count, asyncio.get_running_loop())
        return await scenario(outputs, [Waiting(None, outputs, place) for place in range(count)])

    return asyncio.run(main())


def test_outputs_are_in_the_order_of_the_parts_and_the_timing_the_longest():
    async def scenario(outputs, parts):
        parts[1].succeed("b", Timing(0.1, 0.5, 7))
        assert [part.awaited for part in parts] == [True, False]
        assert not outputs.ended
        parts[0].succeed("a", Timing(0.3, 0.2, 6))
        return list(await outputs.all()), outputs.timing

    assert run(scenario, 2) == (["a", "b"], Timing(0.3, 0.5, 7))


def test_without_parts_nothing_is_awaited():
    async def scenario(outputs, parts):
        return list(await outputs.all())

    assert run(scenario, 0) == []


def test_an_error_ends_the_request_once():
    async def scenario(outputs, parts):
        parts[0].succeed("a", Timing(0.0, 0.0))
        parts[0].fail(ValueError())
        assert not outputs.ended
        parts[1].fail(KeyError())
        parts[2].fail(ValueError())
        parts[2].succeed("c", Timing(0.0, 0.0))
        assert not any(part.awaited for part in parts)
        assert outputs.left == 2
        with pytest.raises(KeyError):
            await outputs.all()

    run(scenario, 3)


def test_a_request_that_is_given_up_awaits_nothing():
    async def scenario(outputs, parts):
        outputs.give_up()
        assert outputs.ended
        assert not parts[0].awaited
        parts[0].succeed("a", Timing(0.0, 0.0))
        assert outputs.left == 1

    run(scenario, 1)
