"""The delay of the event loop is measured inside the service."""

import asyncio
import time

import pytest
from fastapi.testclient import TestClient

from service.observability.loop_lag import measure_loop_lag
from service.server.app import create_app
from service.settings import Settings


class Kept(list):
    observe = list.append


def measured(scenario):
    async def run():
        found = Kept()
        measuring = asyncio.create_task(measure_loop_lag(found))
        await scenario()
        measuring.cancel()
        return found

    return asyncio.run(run())


def test_an_idle_loop_is_not_late():
    found = measured(lambda: asyncio.sleep(0.3))
    assert len(found) > 5
    assert min(found) >= 0
    assert sorted(found)[len(found) // 2] < 0.05


@pytest.mark.parametrize("seconds", [0.1, 0.3])
def test_a_call_that_blocks_is_seen(seconds):
    async def block():
        await asyncio.sleep(0.03)
        time.sleep(seconds)
        await asyncio.sleep(0.03)

    found = measured(block)
    assert seconds - 0.02 < max(found) < seconds + 0.2


def test_the_service_measures_from_its_start_to_its_end(metric):
    app = create_app(Settings(threads=1, models=("next-word:4",)))
    with TestClient(app) as client:
        time.sleep(0.1)
        assert metric(client, "softserve_event_loop_lag_seconds_count") > 1
    (family,) = app.state.metrics.loop_lag.collect()
    bounds = [float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")]
    assert bounds[-2:] == [10.0, float("inf")]
