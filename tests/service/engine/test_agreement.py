"""Statistics of experiments: hand-computed cases, and scipy as a reference."""

import math

import pytest
from scipy import stats

from models.operations.comparison import Comparison
from service.engine.agreement import Agreement, Mean, correlation, quantiles, ranks, wilson_interval


@pytest.mark.parametrize(("count", "total"), [(0, 10), (10, 10), (1, 3), (970, 1000), (5, 7)])
def test_the_interval_of_a_proportion_is_that_of_wilson(count, total):
    reference = stats.binomtest(count, total).proportion_ci(0.95, method="wilson")
    assert wilson_interval(count, total) == pytest.approx((reference.low, reference.high), abs=1e-12)


def test_nothing_is_known_of_no_inputs():
    assert wilson_interval(0, 0) == (0.0, 1.0)
    summary = Agreement().summary()
    assert (summary["agreement"], summary["compared"], summary["pearson"]["value"]) == (None, 0, None)


def test_a_mean_by_hand():
    mean = Mean()
    for value in (1.0, 2.0, 3.0, 6.0):
        mean.add(value)
    half = 1.959964 * math.sqrt(14 / 3 / 4)
    assert mean.summary() == {
        "value": 3.0,
        "low": pytest.approx(3 - half, abs=1e-5),
        "high": pytest.approx(3 + half, abs=1e-5),
        "total": 4,
    }


def test_ranks_of_equal_values_are_their_mean():
    assert ranks([5.0, 1.0, 5.0, 2.0]) == [3.5, 1.0, 3.5, 2.0]


def test_correlations_are_those_of_scipy():
    first, second = [0.1, 0.4, 0.35, 0.8, 0.2, 0.2], [0.2, 0.5, 0.3, 0.6, 0.1, 0.25]
    reference = stats.pearsonr(first, second)
    found = correlation(first, second)
    interval = reference.confidence_interval(0.95)
    assert (found["value"], found["low"], found["high"]) == pytest.approx(
        (reference.statistic, interval.low, interval.high)
    )
    assert correlation(ranks(first), ranks(second))["value"] == pytest.approx(stats.spearmanr(first, second).statistic)
    assert correlation([1.0, 1.0], [1.0, 2.0])["value"] is None


def test_quantiles_are_of_the_nearest_rank():
    assert quantiles([float(number) for number in range(1, 101)]) == {"p50": 50.0, "p99": 99.0}
    assert quantiles([]) == {"p50": None, "p99": None}


def test_comparisons_are_summed_up():
    agreement = Agreement()
    agreement.add(Comparison(True, (0.5, 0.25), {"f1": 1.0}))
    agreement.add(Comparison(False, (math.nan, 0.25), {"f1": 0.0, "other": math.inf}))
    agreement.timed(0, 0.1)
    agreement.timed(1, 0.3)
    found = agreement.summary()
    assert (found["compared"], found["agreement"]["value"]) == (2, 0.5)
    assert found["measures"].keys() == {"f1"}
    assert found["measures"]["f1"]["value"] == 0.5
    assert found["pearson"]["total"] == 1
    assert found["inference_seconds"] == {"primary": {"p50": 0.1, "p99": 0.1}, "candidate": {"p50": 0.3, "p99": 0.3}}


def test_the_statistics_of_several_processes_are_those_of_all_their_inputs():
    """One comparison in three goes to the first process, the others to the second; a third one has compared nothing."""
    numbers = [((number * 37) % 101) / 101 for number in range(60)]
    comparisons = [
        Comparison(number < 0.8, (number, number**2), {"f1": number} | ({"rare": number} if place == 7 else {}))
        for place, number in enumerate(numbers)
    ]
    whole, first, second = Agreement(), Agreement(), Agreement()
    for place, comparison in enumerate(comparisons):
        for each in (whole, second if place % 3 else first):
            each.add(comparison)
            each.timed(place % 2, numbers[place])
    found, expected = Agreement.together([first, second, Agreement()]).summary(), whole.summary()
    assert found["agreement"] == expected["agreement"]
    assert found["inference_seconds"] == expected["inference_seconds"]
    for name in ("pearson", "spearman"):
        assert found[name] == pytest.approx(expected[name])
    assert found["measures"].keys() == expected["measures"].keys()
    for name, mean in found["measures"].items():
        assert mean == pytest.approx(expected["measures"][name])
    assert first.compared == 20, "it is read, and goes on"
