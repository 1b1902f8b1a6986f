"""Tests of the table, computed by hand."""

from benchmarks.peers.load import LoadResult
from benchmarks.peers.report import table


def loads(*rates, errors=0):
    return [LoadResult(rate, p50=1000 / rate, p99=5000 / rate, errors=errors) for rate in rates]


def test_medians_ratios_and_order():
    """Medians: ours 150, slow 50, fast 100; the ceiling 200."""
    found = {
        ("slow", 16): loads(50, 40, 60, errors=1),
        ("ours", 16): loads(100, 200, 150),
        ("fast", 16): loads(100, 125, 80),
    }
    lines = table(found, {16: [250, 200, 160]}, {}, "ours").splitlines()
    assert lines[2:] == [
        "| 16 | ours | 150 | 100 to 200 | 6.7 ms | 33.3 ms | 0 | 1.50 | 0.75 |",
        "| 16 | fast | 100 | 80 to 125 | 10.0 ms | 50.0 ms | 0 | 1.00 | 0.50 |",
        "| 16 | slow | 50 | 40 to 60 | 20.0 ms | 100.0 ms | 3 | 0.50 | 0.25 |",
        "| 16 | ceiling | 200 | 160 to 250 |  |  |  |  | 1 |",
    ]


def test_each_number_of_connections_has_its_own_best_peer_and_ceiling():
    found = {("ours", 64): loads(90), ("ours", 1): loads(30), ("peer", 64): loads(45), ("peer", 1): loads(40)}
    lines = table(found, {64: [100], 1: [50]}, {}, "ours").splitlines()
    assert [line.split(" | ")[0:2] + line.split(" | ")[-2:] for line in lines[2:]] == [
        ["| 1", "peer", "1.00", "0.80 |"],
        ["| 1", "ours", "0.75", "0.60 |"],
        ["| 1", "ceiling", "", "1 |"],
        ["| 64", "ours", "2.00", "0.90 |"],
        ["| 64", "peer", "1.00", "0.45 |"],
        ["| 64", "ceiling", "", "1 |"],
    ]


def test_failures_are_named_and_no_peer_makes_no_ratio():
    lines = table({("ours", 1): loads(100)}, {1: [200]}, {"peer": "it was not ready"}, "ours").splitlines()
    assert lines[2] == "| 1 | ours | 100 | 100 to 100 | 10.0 ms | 50.0 ms | 0 |  | 0.50 |"
    assert lines[-1] == "* **peer failed**: it was not ready"
