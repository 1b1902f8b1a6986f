"""A progress bar of a load test on standard error, where that is a terminal."""

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from benchmarks.load.generator import LoadTest
from benchmarks.load.options import LoadOptions

__all__ = ["progress_bar"]

_REFRESHES = 4
"""Updates per second; more would take processor time from the server."""


@contextlib.contextmanager
def progress_bar(test: LoadTest, options: LoadOptions, console: Console) -> Iterator[None]:
    """Show a progress bar while the body runs; without effect where the console is not a terminal."""
    began, total = time.perf_counter(), options.warm_up + options.seconds

    def row() -> Table:
        seconds, outcome = time.perf_counter() - began, test.outcome
        requests = outcome.requests  # it is read first and counted last: the thread that draws counts no failure early
        counts = {"answered": len(outcome.answered), "refused": len(outcome.refused)}
        counts["failed"] = max(0, requests - sum(counts.values()))
        what = "warming up" if seconds < options.warm_up else "measuring" if seconds < total else "last responses"
        table = Table.grid(padding=(0, 1))
        bar, elapsed = ProgressBar(total, min(seconds, total), width=40), str(timedelta(seconds=int(seconds)))
        table.add_row(what, bar, elapsed, ", ".join(f"{count} {kind}" for kind, count in counts.items() if count))
        return table

    with Live(get_renderable=row, console=console, refresh_per_second=_REFRESHES, transient=True):
        yield
