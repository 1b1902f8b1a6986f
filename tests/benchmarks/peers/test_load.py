"""Tests of wrk's output and of the error where it is missing."""

import pytest

from benchmarks.peers.load import LoadResult, find_wrk, parse

OUTPUT = """Running 2s test @ http://127.0.0.1:8000/classify
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    71.40ms   20.12ms 160.00ms   70.00%
  410 requests in 2.00s, 70.12KB read
Requests/sec:    205.00

result {"answers": 410, "microseconds": 2000000, "p50": 71400.0, "p99": 160000.5, "refused": 10, "broken": 2, "late": 1}
"""


def test_refused_requests_are_errors_and_do_not_count_as_answers():
    assert parse(OUTPUT) == LoadResult(rate=200.0, p50=71.4, p99=160.0005, errors=13)


def test_what_wrk_says_is_in_the_error():
    with pytest.raises(RuntimeError, match="unable to connect"):
        parse("unable to connect to 127.0.0.1:1 Connection refused\n")


def test_where_wrk_is_missing_the_error_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="apt-get install wrk"):
        find_wrk()
