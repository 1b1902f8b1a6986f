"""The simulation by hand, and that the policy of the service is compared with the others on all traces."""

import random

import pytest

from benchmarks.batching import DEVICES, compare
from benchmarks.batching_simulation import (
    Arrivals,
    Bounds,
    CostModel,
    Device,
    FixedDelay,
    Ours,
    TokenBudget,
    backlog,
    poisson,
    simulate,
)

DEVICE = Device("one", CostModel(fixed=1.0, per_item=0.0, per_token=0.1), Bounds(2, 100))


@pytest.mark.parametrize("policy", [Ours(DEVICE), FixedDelay(DEVICE, 0.0), TokenBudget(DEVICE, 100)])
def test_a_backlog_by_hand(policy):
    """Batches of 2 x 5 and of 5 tokens take 2.0 and 1.5 seconds."""
    result = simulate(policy, DEVICE.cost, backlog(3), [5, 5, 5])
    assert (result.throughput, result.p50, result.p99) == pytest.approx((3 / 3.5, 2.0, 2.0))
    assert result.batch == 1.5


def test_a_fixed_delay_waits_for_a_second_request():
    arrivals = Arrivals([(0.0, -1), (0.4, -1)])
    at_once = simulate(FixedDelay(DEVICE, 0.0), DEVICE.cost, arrivals, [5, 5])
    delayed = simulate(FixedDelay(DEVICE, 0.5), DEVICE.cost, arrivals, [5, 5])
    assert (at_once.batch, delayed.batch) == (1.0, 2.0)
    assert delayed.throughput == pytest.approx(2 / 2.4)


def test_a_clients_next_request_follows_its_result():
    arrivals = Arrivals([(0.0, 0)], again=lambda: 0.5)
    result = simulate(Ours(DEVICE), DEVICE.cost, arrivals, [5, 5, 5])
    assert result.throughput == pytest.approx(3 / (3 * 1.5 + 2 * 0.5))


def test_the_same_seed_gives_the_same_result():
    results = [simulate(Ours(DEVICE), DEVICE.cost, poisson(0.5, 50, random.Random(3)), [5] * 50) for _ in range(2)]
    assert results[0] == results[1]


def test_ours_is_compared_on_every_device_and_leads_in_a_backlog():
    rows = compare([3, 5, 8, 9, 12, 20, 31], 300, 1)
    assert {row.device for row in rows} == {device.name for device in DEVICES}
    assert all(row.ours > 0 and len(row.others) == 3 for row in rows)
    assert all(row.least_advantage > 1.1 for row in rows if row.trace == "backlog" and row.device == "CPU")
