"""A served model is drained once no request holds it."""

import asyncio
from types import SimpleNamespace

from service.engine.served_model import ServedModel, full_names, names_of


def test_draining_waits_for_the_requests_that_hold_it_and_stops_the_batcher():
    stopped = []

    class Batcher:
        async def stop(self):
            stopped.append(True)

    async def run():
        model = SimpleNamespace(manifest=SimpleNamespace(name="a", version=3))
        served = ServedModel(model, Batcher(), None, "digest")
        assert served.key == ("a", 3)
        served.hold()
        served.hold()
        draining = asyncio.create_task(served.drain())
        served.release()
        await asyncio.sleep(0.01)
        assert not stopped
        served.release()
        await asyncio.wait_for(draining, 5)
        assert stopped == [True]

    asyncio.run(run())


def test_a_model_has_two_names():
    assert names_of(("a", 3)) == ("a", "a:3")
    assert full_names([("b", 1), ("a", 10), ("a", 2)]) == ["a:10", "a:2", "b:1"]
