"""Reports of progress on terminals and in logs."""

import sys
import time

import pytest

from service.offline.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("terminal", "seconds"), [(True, 0.2), (False, 5)])
def test_reports_come_after_some_time(monkeypatch, capsys, clock, terminal, seconds):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    progress = Progress(1000, done=200)
    clock[0] += seconds / 2
    progress.add(100)
    assert capsys.readouterr().err == ""
    clock[0] += 0.6 * seconds
    progress.add(100)
    found = capsys.readouterr().err
    assert "400 of 1,000 lines" in found
    assert found.startswith("\r") == terminal
    progress.end()
    assert bool(capsys.readouterr().err) == terminal


def test_the_rate_counts_the_lines_of_this_run(capsys, clock):
    progress = Progress(None, done=500)
    clock[0] += 100
    progress.add(1000)
    assert capsys.readouterr().err == "1,500 lines, 10 lines/s\n"
