"""Tests of the difference of two scrapes, and of quantiles from buckets."""

import math

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from benchmarks.load.scrape import Difference, Distribution, Scrape, ScrapeError
from service.observability.metrics import Metrics

BOUNDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, math.inf)


def test_a_quantile_by_hand():
    # 6 values in (0, 0.5], 5 in (0.5, 1] and 3 in (1, 2]: the 7th is a fifth into the second bucket.
    found = Distribution(7.0, (0.5, 1.0, 2.0, math.inf), (6.0, 5.0, 3.0, 0.0))
    assert found.quantile(0.5) == pytest.approx(0.5 + 0.5 / 5)
    assert found.quantile(0.0) == 0.0
    assert found.quantile(1.0) == 2.0
    assert (found.count, found.mean) == (14.0, 0.5)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99])
def test_a_quantile_lies_in_the_bucket_of_numpys(share):
    values = np.random.default_rng(0).lognormal(-1.0, 0.8, 5000)
    edges = np.array((0.0, *BOUNDS))
    found = Distribution(values.sum(), BOUNDS, tuple(map(float, np.histogram(values, edges)[0])))
    truth = float(np.percentile(values, 100 * share))
    place = int(np.searchsorted(BOUNDS, truth))
    assert edges[place] <= found.quantile(share) <= edges[place + 1]
    assert found.mean == pytest.approx(values.mean())


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_a_quantile_is_numpys_where_values_are_spread_evenly(share):
    values = np.linspace(0, 5, 100_001)[1:]
    counts = np.histogram(values, np.nextafter((0.0, *BOUNDS), np.inf))[0]
    found = Distribution(values.sum(), BOUNDS, tuple(map(float, counts)))
    assert found.quantile(share) == pytest.approx(np.percentile(values, 100 * share), abs=1e-3)


def test_values_beyond_the_last_bucket_are_given_as_its_bound():
    found = Distribution(1e3, BOUNDS, (0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 9.0))
    assert found.quantile(0.5) == found.largest == 5.0


def test_a_bucket_that_ends_at_zero():
    found = Distribution(0.0, (0.0, 0.5, math.inf), (4.0, 0.0, 0.0))
    assert found.quantile(0.5) == 0.0


def scrape(metrics, seconds=0.0):
    return Scrape.parse(metrics.text(), seconds)


@pytest.fixture
def metrics():
    """Return the metrics of a service that has served requests before."""
    metrics = Metrics()
    metrics.queue_duration.labels("mine", "1").observe(9.0)
    metrics.batch_items.labels("mine", "1").observe(32)
    metrics.rejected.labels("mine", "1", "overloaded").inc(7)
    metrics.rejected.labels("mine", "1", "invalid").inc(1)
    metrics.prefix_hits.labels("mine", "1").inc(2)
    return metrics


def test_only_what_this_model_did_in_between_counts(metrics):
    before = scrape(metrics, 100.0)
    for seconds in (0.001, 0.003):
        metrics.queue_duration.labels("mine", "1").observe(seconds)
    metrics.queue_duration.labels("other", "1").observe(5.0)
    metrics.inference_duration.labels("mine", "1").observe(0.5)  # not there before
    metrics.rejected.labels("mine", "1", "overloaded").inc(3)
    metrics.rejected.labels("other", "1", "expired").inc(3)
    metrics.generated_tokens.labels("mine", "1").inc(11)
    difference = Difference(before, scrape(metrics, 104.0), "mine")
    assert difference.seconds == 4.0
    waited = difference.distribution("queue_duration_seconds")
    assert waited.count == 2
    assert waited.mean == pytest.approx(0.002)
    assert waited.quantile(1.0) == 0.005
    assert difference.distribution("inference_duration_seconds").mean == 0.5
    assert difference.distribution("batch_items").count == 0
    assert difference.distribution("no_such_thing").count == 0
    assert difference.by_label("rejected", "reason") == {"overloaded": 3.0}
    assert difference.counter("generated_tokens") == 11
    assert difference.counter("prefix_cache_hits") == 0
    assert difference.gauge("process_resident_memory_bytes") > 1e6
    assert difference.gauge("no_such_thing") is None


def test_versions_of_a_model_are_added_up(metrics):
    before = scrape(metrics)
    for version in ("1", "2"):
        metrics.queue_duration.labels("mine", version).observe(0.003)
        metrics.rejected.labels("mine", version, "overloaded").inc(3)
    difference = Difference(before, scrape(metrics), "mine")
    assert difference.distribution("queue_duration_seconds").count == 2
    assert difference.by_label("rejected", "reason") == {"overloaded": 6.0}


def test_another_model_that_is_unloaded_is_no_restart(metrics):
    metrics.generated_tokens.labels("other", "1").inc(3)
    before = scrape(metrics)
    metrics.generated_tokens.remove("other", "1")
    assert Difference(before, scrape(metrics), "mine").counter("generated_tokens") == 0


def counted(**values):
    """Return the scrape of a registry whose counters have these values."""
    registry = CollectorRegistry()
    for name, value in values.items():
        Counter(f"softserve_{name}", "Count", ["model"], registry=registry).labels("mine").inc(value)
    return Scrape.parse(generate_latest(registry), 0.0)


def without_created(found):
    return Scrape({key: value for key, value in found.series.items() if not key[0].endswith("_created")}, 0.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"texts": 5.0}, {"texts": 4.0}),
        ({"texts": 5.0}, {"others": 9.0}),
        ({"texts": 0.0}, {"others": 9.0}),
    ],
)
def test_counters_that_go_back_are_a_restart(before, after):
    pair = without_created(counted(**before)), without_created(counted(**after))
    with pytest.raises(ScrapeError, match="the server restarted during the run"):
        Difference(*pair, "mine")


def test_a_restart_shows_where_counters_are_past_what_they_were(metrics):
    before, after = counted(texts=5.0), counted(texts=50.0)
    assert Difference(without_created(before), without_created(after), "mine").counter("texts") == 45
    with pytest.raises(ScrapeError, match="restarted"):
        Difference(before, after, "mine")


def test_gauges_may_fall(metrics):
    metrics.queue_items.labels("mine", "1").set(9)
    before = scrape(metrics)
    metrics.queue_items.labels("mine", "1").set(0)
    assert Difference(before, scrape(metrics), "mine").counter("rejected") == 0


@pytest.mark.parametrize(
    "content",
    [
        b"<html><body>nothing here</body></html>",
        b"\x00\x01",
        b"{}",
        b"\xff\xfe",
        b"a b c d",
        b'softserve_x{a="b 1',
        b"x{",
    ],
)
def test_what_is_no_exposition_format(content):
    with pytest.raises(ScrapeError, match="not in the text format of Prometheus"):
        Scrape.parse(content, 0.0)


@pytest.mark.parametrize("content", [b"", b"go_goroutines 5\n"])
def test_metrics_of_somebody_else(content):
    with pytest.raises(ScrapeError, match="no metrics of Softserve"):
        Scrape.parse(content, 0.0)


def test_a_histogram_of_the_client_library_is_read_as_it_was_written():
    registry = CollectorRegistry()
    histogram = Histogram("softserve_x", "X", ["model"], buckets=(1, 2, 4), registry=registry)
    before = Scrape.parse(generate_latest(registry) + b"softserve_up 1\n", 0.0)
    for value in (0.5, 1.5, 1.6, 3.0, 100.0):
        histogram.labels("mine").observe(value)
    found = Difference(before, Scrape.parse(generate_latest(registry) + b"softserve_up 1\n", 1.0), "mine")
    assert found.distribution("x") == Distribution(106.6, (1.0, 2.0, 4.0, math.inf), (1.0, 2.0, 1.0, 1.0))
