"""The progress of a run: a bar on a terminal, a line every five seconds elsewhere; that of reading its data."""

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from training.output import console, progress, shown_otherwise

__all__ = ["RunProgress", "counted"]

INTERVAL = 5.0
"""Seconds between two lines."""


T = TypeVar("T")


def counted(items: Iterable[T], noun: str) -> Iterator[T]:
    """Yield the items, and print every five seconds how many there have been."""
    due = time.monotonic() + INTERVAL
    for number, item in enumerate(items, 1):
        if (now := time.monotonic()) >= due:
            console.print(f"{number:,} {noun} read")
            due = now + INTERVAL
        yield item


class RunProgress:
    """Shows epoch, step, loss, learning rate, speed and the time that is left of the whole run, evaluations included.

    The time is an upper bound: patience may end the run sooner. It is extrapolated from this session.
    """

    def __init__(self, report: Callable[[str], None], *, epochs: int, epoch_steps: int, epoch: int, step: int) -> None:
        """`epoch` and its `step` are the next ones, counted from 0; `epoch_steps` is the number of steps an epoch."""
        self._report = report
        self._epochs, self._epoch_steps, self._total = epochs, epoch_steps, epochs * epoch_steps
        self._epoch = epoch
        self._first = self._done = epoch * epoch_steps + step
        self._started = time.monotonic()
        self._time = math.inf
        self._now, self._speed = "reading data", ""
        self._bar: Bar | None = None

    def limit(self, steps: int) -> None:
        """Lower the number of steps of this session."""
        self._total = min(self._total, self._first + steps)

    def limit_time(self, seconds: float) -> None:
        """Limit the time of this session."""
        self._time = seconds

    def step(self, epoch: int, step: int, loss: float, rate: float, speed: float) -> None:
        """Note a finished step: `step` is how many of the epoch are done, `speed` the targets a second."""
        self._epoch, self._done = epoch, epoch * self._epoch_steps + min(step, self._epoch_steps)
        self._now, self._speed = f"loss {loss:.3f}, lr {rate:.2e}", f", {speed:,.0f} targets/s"
        self._renew()

    def evaluating(self) -> None:
        """Note that the model is being evaluated."""
        self._now, self._speed = "evaluating", ""
        self._renew()

    def text(self) -> str:
        """Return the line that is printed."""
        place = f"epoch {self._epoch_of(' of ')}, step {self._done:,} of {self._total:,}"
        return f"{place}: {self._now}{self._speed}, {self._left()}"

    def short_text(self) -> str:
        """Return the text behind the bar, for terminals of 80 columns."""
        return f"epoch {self._epoch_of('/')}, {self._now}, {self._left()}"

    def _epoch_of(self, separator: str) -> str:
        return f"{min(self._epoch + 1, self._epochs)}{separator}{self._epochs}"

    def _left(self) -> str:
        elapsed, done = time.monotonic() - self._started, self._done - self._first
        by_steps = elapsed / done * (self._total - self._done) if done else math.inf
        seconds = min(by_steps, max(0.0, self._time - elapsed))
        return f"at most {timedelta(seconds=round(seconds)) if math.isfinite(seconds) else 'unknown time'} left"

    def _renew(self) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, text=self.short_text())

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress within the block."""
        with shown_otherwise():
            yield from self._shown()

    def _shown(self) -> Iterator[None]:
        if progress.is_terminal:
            columns = BarColumn(15), TextColumn("{task.fields[text]}")
            redirected = sys.stdout.isatty()
            with Bar(*columns, console=progress, transient=True, redirect_stdout=redirected) as self._bar:
                self._bar.add_task("", total=self._total, completed=self._done, text=self.short_text())
                yield
            self._bar = None
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._print_lines, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _print_lines(self, ended: threading.Event) -> None:
        while not ended.wait(INTERVAL):
            self._report(self.text())
