"""Tests of the progress of a run: the text, the time left of all epochs, and lines in a file."""

import io
import re
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from training.run import progress
from training.run.progress import RunProgress, counted


def _progress(lines: list[str], *, epoch: int = 0, step: int = 0) -> RunProgress:
    return RunProgress(lines.append, epochs=4, epoch_steps=1000, epoch=epoch, step=step)


def test_the_time_left_is_that_of_all_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the steps in 30 s: nine times as much is left."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shown = _progress([])
    assert shown.text() == "epoch 1 of 4, step 0 of 4,000: reading data, at most unknown time left"
    now = 130.0
    shown.step(0, 400, 2.5, 1e-3, 1234.4)
    now_shown = "loss 2.500, lr 1.00e-03, 1,234 targets/s"
    assert shown.text() == f"epoch 1 of 4, step 400 of 4,000: {now_shown}, at most 0:04:30 left"
    shown.evaluating()
    assert shown.text() == "epoch 1 of 4, step 400 of 4,000: evaluating, at most 0:04:30 left"


def test_items_are_counted_every_five_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An item takes 2 s and the fourth 20 s: after 6 s three have been read, and a line follows each 5 s."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def slow() -> Iterator[int]:
        nonlocal now
        for number in range(7):
            now += 20.0 if number == 3 else 2.0
            yield number

    assert list(counted(slow(), "texts")) == list(range(7))
    assert capsys.readouterr().out == "3 texts read\n4 texts read\n7 texts read\n"


def test_only_steps_of_this_session_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shown = _progress([], epoch=2, step=500)
    shown.limit(200)
    now = 10.0
    shown.step(2, 600, 1.0, 1e-3, 1.0)
    assert shown.text().startswith("epoch 3 of 4, step 2,600 of 2,700: ")
    assert shown.text().endswith("at most 0:00:10 left")


def test_the_time_left_is_at_most_that_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shown = _progress([])
    shown.limit_time(60)
    assert shown.text().endswith("at most 0:01:00 left")
    now = 10.0
    shown.step(0, 100, 1.0, 1e-3, 1.0)
    assert shown.text().endswith("at most 0:00:50 left")
    shown.step(3, 900, 1.0, 1e-3, 1.0)
    assert shown.text().endswith("at most 0:00:00 left")


def test_lines_are_printed_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    lines: list[str] = []
    shown = _progress(lines)
    with shown.shown():
        shown.step(1, 10, 3.0, 1e-3, 1.0)
        until = time.monotonic() + 10
        while not lines and time.monotonic() < until:
            time.sleep(0.01)
    assert re.fullmatch(r"epoch 2 of 4, step 1,010 of 4,000: loss 3\.000, .* left", lines[0])
    printed = len(lines)
    time.sleep(0.05)
    assert len(lines) == printed


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "progress", Console(force_terminal=True, file=io.StringIO()))
    lines: list[str] = []
    shown = _progress(lines)
    with shown.shown():
        shown.step(1, 10, 3.0, 1e-3, 1.0)
        assert shown._bar is not None
        (task,) = shown._bar.tasks
        assert (task.completed, task.total) == (1010, 4000)
        assert task.fields["text"] == shown.short_text()
        assert shown.short_text().startswith("epoch 2/4, loss 3.000, lr 1.00e-03, at most ")
        assert 15 + 1 + len(shown.short_text()) <= 80
    assert lines == []
