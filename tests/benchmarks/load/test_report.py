"""Tests of the result as JSON and as tables."""

import io
import json
import math
from collections import Counter

import numpy as np
import pytest
from rich.console import Console

from benchmarks.load.generator import Outcome
from benchmarks.load.report import client_results, print_report, server_results
from benchmarks.load.scrape import Difference, Scrape
from service.observability.metrics import Metrics

ASKED = {
    "url": "http://[::1]:80",
    "model": "some",
    "version": 2,
    "task": "translation",
    "reads": "text",
    "endpoint": "/v1/translate",
    "connections": 4,
    "rate": None,
    "warm_up": 0.0,
    "texts_per_request": 3,
    "texts": "built-in texts",
    "interrupted": False,
}
TIMES = [0.001 * number for number in range(1, 101)]


@pytest.fixture
def outcome():
    """100 right answers in 2 s, of which 10 came late, 5 refusals, 3 errors and 2 failures."""
    return Outcome(
        seconds=2.0,
        requests=110,
        answered=TIMES,
        refused=[0.002] * 5,
        retry_after=Counter({"1": 4, "none": 1}),
        statuses=Counter({200: 100, 429: 5, 422: 3}),
        failures=Counter({"connection refused": 2}),
        details={422: "text [/b] \x1b[2J: too long"},
        in_time=90,
        after=10,
        late=[0.0001] * 110,
        processor_seconds=0.5,
    )


@pytest.fixture
def difference():
    metrics = Metrics()
    before = Scrape.parse(metrics.text() + b"softserve_up 1\n", 10.0)
    for seconds in (0.002, 0.003, 60.0):
        metrics.queue_duration.labels("some", "1").observe(seconds)
    metrics.padding_ratio.labels("some", "1").observe(0.25)
    metrics.batch_items.labels("some", "1").observe(8)
    metrics.rejected.labels("some", "1", "overloaded").inc(5)
    metrics.prefix_hits.labels("some", "1").inc(3)
    metrics.prefix_misses.labels("some", "1").inc(1)
    metrics.generated_tokens.labels("some", "1").inc(100)
    text = metrics.text() + b"process_resident_memory_bytes 2.5e+08\n"
    return Difference(before, Scrape.parse(text, 14.0), "some")


def shown(result):
    output = io.StringIO()
    print_report(Console(file=output, width=200), result)
    return output.getvalue()


def row(text, name, table=0):
    """Cells of the row of that name, in the table of that number among those that have it."""
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    return [found[1:] for found in cells if found[0] == name][table]


def test_rates_count_what_came_in_time_and_percentiles_are_numpys(outcome):
    part = client_results(outcome, texts=3)
    assert (part["requests_per_second"], part["texts_per_second"]) == (45.0, 135.0)
    assert part["latency_ms"]["mean"] == pytest.approx(50.5)
    for share in (50, 90, 95, 99):
        assert part["latency_ms"][f"p{share}"] == pytest.approx(1000 * np.percentile(TIMES, share))
    assert part["latency_ms"]["max"] == pytest.approx(100.0)
    assert part["statuses"] == {"200": 100, "422": 3, "429": 5}
    assert part["refused"]["retry_after"] == {"1": 4, "none": 1}
    assert part["client"]["processor_share"] == 0.25
    json.dumps(part, allow_nan=False)


def test_the_servers_part_by_hand(difference):
    part = server_results(difference)
    assert part["queue_ms"]["count"] == 3
    assert part["queue_ms"]["mean"] == pytest.approx(1000 * 60.005 / 3)
    # The 1.5th of 3: 2 lie in the bucket (1 ms, 2.5 ms] or (2.5 ms, 5 ms], one each.
    assert part["queue_ms"]["p50"] == pytest.approx(2.5 + 2.5 * 0.5)
    assert part["queue_ms"]["p99"] == 10_000
    assert part["queue_ms"]["at_least"] == ["p99"]
    assert part["padding_ratio"]["mean"] == 0.25
    assert "at_least" not in part["padding_ratio"]
    assert "inference_ms" not in part
    assert (part["batch_items"]["mean"], part["batch_items"]["p50"], part["batch_items"]["p99"]) == (8, 6, 8)
    assert part["refused"] == {"overloaded": 5}
    assert part["prefix_cache"] == {"hits": 3, "misses": 1}
    assert part["generated_tokens_per_second"] == 25.0
    assert part["resident_bytes"] == 2.5e8
    json.dumps(part, allow_nan=False)


def test_the_tables_say_it(outcome, difference):
    text = shown({**ASKED, **client_results(outcome, 3), "server": server_results(difference)})
    assert "some:2 (translation) at http://[::1]:80/v1/translate" in text
    assert "closed loop, 4 connections, 3 texts per request, built-in texts; 2.0 s" in text
    assert row(text, "sent") == ["110", "55.0"]
    assert row(text, "answered") == ["100", "45.0"]
    assert row(text, "answered", table=1) == ["50.5", "50.5", "90.1", "95.0", "99.0", "100.0"]
    assert row(text, "refused") == ["2.00"] * 6
    assert row(text, "texts answered") == ["300", "135.0"]
    assert row(text, "refused (429)") == ["5", ""]
    assert row(text, "status 422") == ["3", ""]
    assert row(text, "connection refused") == ["2", ""]
    assert r"status 422: text [/b] \x1b[2J: too long" in text  # a server cannot clear the screen
    assert "10 responses came after the measured time" in text
    assert "Retry-After of refused requests, in seconds: 1 (4 x), none (1 x)" in text
    assert row(text, "queue time per text, ms") == ["3", "20002", "3.75", ">10000"]
    assert row(text, "padding per batch, %")[:2] == ["1", "25.0"]
    assert row(text, "texts per batch") == ["1", "8.00", "6.00", "8.00"]
    assert "texts refused: 5 overloaded" in text
    assert "prefix cache: 75 % of 4 contexts hit" in text
    assert "generated tokens/s: 25.0" in text
    assert "resident memory: 250 MB" in text
    assert "the client" not in text


def test_a_client_that_is_the_limit_says_so(outcome):
    outcome.processor_seconds = 1.9
    outcome.late = [0.05] * 110
    text = shown({**ASKED, "rate": 55.0, **client_results(outcome, 3), "server": {"missing": "no /metrics [/b]"}})
    assert "open loop, 55 requests/s" in text
    assert row(text, "due") == ["110", "55.0"]
    assert "the client used 95 % of a processor" in text
    assert "the client sent requests late: p99 50.0 ms" in text
    assert "no metrics of the server: no /metrics [/b]" in text


def test_nothing_came_to_an_end():
    part = client_results(Outcome(), 1)
    assert not any(math.isnan(value) for value in (part["requests_per_second"], part["client"]["processor_share"]))
    text = shown({**ASKED, "interrupted": True, **part, "server": {"missing": "it did not begin"}})
    assert "ended early" in text
    assert "no request was completed" in text
