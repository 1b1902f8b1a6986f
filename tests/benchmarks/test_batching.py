import math
import random

import pytest

from benchmarks.batching import DEVICES, Row, main, text_lengths
from benchmarks.batching_simulation import (
    Bounds,
    CostModel,
    Device,
    FixedDelay,
    Ours,
    ShapedCost,
    TokenBudget,
    backlog,
    closed_loop,
    poisson,
    simulate,
)
from benchmarks.shape_buckets import Buckets

DEVICE = Device("test", CostModel(fixed=1.0, per_item=0.0, per_token=0.1), Bounds(items=2, tokens=100))


def arrive(*times):
    return type(backlog(0))([(time, -1) for time in times])


@pytest.mark.parametrize(
    ("policy", "latencies", "batches"),
    [
        # The first starts at 0 and ends at 2; the other two, 2 x 10 tokens, end at 5.
        (TokenBudget(DEVICE, 100), [2.0, 4.9, 4.0], 2),
        # Two requests fill a batch at 0.1, which ends at 3.1; the last one waits until 3.5, and ends at 5.5.
        (FixedDelay(DEVICE, 2.5), [3.1, 3.0, 4.5], 2),
        # The delay of the last one counts from 3.1, when the device is free.
        (FixedDelay(DEVICE, 2.5, from_free=True), [3.1, 3.0, 6.6], 2),
    ],
)
def test_latencies_by_hand(policy, latencies, batches):
    result = simulate(policy, DEVICE.cost, arrive(0.0, 0.1, 1.0), [10, 10, 10])
    assert result.batch == pytest.approx(3 / batches)
    assert result.p50 == pytest.approx(sorted(latencies)[1])
    assert result.throughput == pytest.approx(3 / max(t + at for t, at in zip(latencies, (0.0, 0.1, 1.0), strict=True)))


def test_a_preferred_size_starts_before_the_delay_ends():
    device = Device("test", DEVICE.cost, Bounds(8, 100))
    trace = arrive(0.0, 0.1, 0.2)
    assert simulate(FixedDelay(device, 50.0, [3]), device.cost, trace, [1, 1, 1]).p50 == pytest.approx(1.4)
    assert simulate(FixedDelay(device, 50.0), device.cost, trace, [1, 1, 1]).p50 == pytest.approx(51.2)


def test_a_token_budget_bounds_padded_tokens():
    assert simulate(TokenBudget(DEVICE, 10), DEVICE.cost, backlog(4), [5, 5, 6, 6]).batch == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    "make", [Ours, lambda device: FixedDelay(device, 0.002), lambda device: TokenBudget(device, 64)]
)
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_every_request_is_answered(make, device):
    lengths = [random.Random(0).randint(3, 30) for _ in range(300)]
    trace = poisson(0.5 * device.capacity(lengths), 300, random.Random(1))
    result = simulate(make(device), device.cost, trace, lengths)
    assert result.throughput * max(time for time, _ in trace.times) <= 300
    assert 0 < result.p50 <= result.p99 < math.inf


def test_a_closed_loop_on_a_device_with_a_large_fixed_cost_fills_its_batches():
    """Without waiting, half of the clients would be computed while the others wait."""
    lengths = [10] * 2000
    ours = simulate(Ours(DEVICES[1]), DEVICES[1].cost, closed_loop(16, random.Random(0)), lengths)
    at_once = simulate(FixedDelay(DEVICES[1], 0.0), DEVICES[1].cost, closed_loop(16, random.Random(0)), lengths)
    assert ours.throughput > 1.3 * at_once.throughput
    assert ours.batch > 15


def test_advantage_is_above_1_where_the_service_is_better():
    assert Row("GPU", "backlog", "texts/s", 20.0, {"TEI": (10.0, "")}).least_advantage == 2
    assert Row("GPU", "bursts", "p99 ms", 20.0, {"TEI": (10.0, ""), "Triton": (30.0, "")}).least_advantage == 0.5


@pytest.mark.parametrize(
    ("ours", "interval", "standing", "reason"),
    [
        (10.0, (0.9, 1.1), "best", ""),
        (9.0, (0.8, 1.01), "equal", "equal: 0.800 to 1.010 over seeds"),
        (9.0, (0.8, 0.99), "behind", "p99 is 3"),
    ],
)
def test_a_row_says_why_the_service_is_not_the_best(ours, interval, standing, reason):
    row = Row("GPU", "closed loop", "texts/s", ours, {"TEI": (10.0, "")}, interval, "p99 is 3")
    assert (row.standing, row.reason) == (standing, reason)


def test_the_beginning_and_the_end_of_a_trace_do_not_count():
    """Latencies are 2 s, then 4 s and so on, since every batch waits for the one before."""
    trace = arrive(*[0.0] * 10)
    device = Device("test", DEVICE.cost, Bounds(1, 100))
    result = simulate(TokenBudget(device, 10), device.cost, trace, [10] * 10, transient=0.2)
    assert (result.p50, result.p99) == pytest.approx((10.0, 14.0))
    assert result.throughput == pytest.approx(6 / 12)
    assert result.batch == 1


def test_batches_are_padded_to_buckets_that_are_warm():
    buckets = Buckets([(4, [10])])
    two = simulate(TokenBudget(DEVICE, 100), ShapedCost(DEVICE.cost, 7.0, buckets), backlog(2), [5, 5])
    assert two.p99 == pytest.approx(1.0 + 4 * 10 * 0.1)


def test_the_first_batch_of_a_shape_is_cold_without_buckets():
    cost = ShapedCost(DEVICE.cost, 7.0)
    result = simulate(TokenBudget(DEVICE, 100), cost, backlog(4), [5] * 4)
    assert cost.shapes == {(2, 5): 2}
    assert result.throughput == pytest.approx(4 / (2 * 2.0 + 7.0))


def test_the_costs_of_buckets_are_printed(tmp_path, capsys):
    main(data=tmp_path, quick=True, buckets=True)
    (*_, warm, cold, powers, _, _, _) = capsys.readouterr().out.splitlines()
    assert "all warm" in warm
    assert "50 ms" in cold
    assert powers.startswith("| powers of two | ")


def test_missing_corpora_are_replaced_and_named(tmp_path):
    source, lengths = text_lengths("clinc150", tmp_path)
    assert "log-normal" in source
    assert min(lengths) >= 3


def test_the_quick_comparison_has_throughput_within_a_tenth_of_the_best(tmp_path, capsys):
    main(data=tmp_path, quick=True, plot=tmp_path / "plot.svg")
    printed = capsys.readouterr().out
    assert printed.count("| GPU |") == printed.count("| CPU |") == 16
    ratios = [float(line.split("|")[-3]) for line in printed.splitlines() if "| texts/s |" in line]
    assert len(ratios) == 12
    assert min(ratios) > 0.9
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_policy_times_are_printed(capsys):
    main(policy_time=True)
    assert len(capsys.readouterr().out.splitlines()) == 8
