"""A progress bar of a load test on standard error, where that is a terminal."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from service.bench.load import LoadTest
from service.bench.options import LoadOptions

__all__ = ["progress_bar"]

_REFRESH_SECONDS = 0.25
"""Seconds between two updates; more frequent ones would take processor time from the server."""


@contextlib.asynccontextmanager
async def progress_bar(test: LoadTest, options: LoadOptions, console: Console) -> AsyncIterator[None]:
    """Show a progress bar while the body runs; without effect where the console is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[counts]}"))
    hidden = not console.is_terminal
    with Progress(*columns, console=console, auto_refresh=False, transient=True, disable=hidden) as bar:
        drawing = asyncio.create_task(_draw(test, options, bar))
        try:
            yield
        finally:
            drawing.cancel()


async def _draw(test: LoadTest, options: LoadOptions, bar: Progress) -> None:
    began = time.perf_counter()
    total = options.warm_up + options.seconds
    task = bar.add_task("warming up", total=total, counts="")
    while True:
        seconds = time.perf_counter() - began
        outcome = test.outcome
        kinds = {"answered": len(outcome.answered), "refused": len(outcome.refused)}
        kinds["failed"] = outcome.requests - sum(kinds.values())
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
        what = "warming up" if seconds < options.warm_up else "measuring" if seconds < total else "last responses"
        bar.update(task, description=what, completed=min(seconds, total), counts=counts, refresh=True)
        await asyncio.sleep(_REFRESH_SECONDS)
