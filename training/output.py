"""The console of all commands, and a sign that a command goes on where it prints nothing for seconds."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from models.escaping import escaped

__all__ = ["alive", "console", "print_lines", "progress", "shown_otherwise"]

_SILENCE = 5.0
"""Seconds without a line after which a command says that it goes on."""
_SHOWN = 60
"""Characters of the last line that are shown with the time since it."""


class _Silence:
    """The time since the last line."""

    def __init__(self) -> None:
        self.line, self.since, self.paused = "", time.monotonic(), 0

    def ended_by(self, line: str) -> None:
        self.line, self.since = line, time.monotonic()

    def text(self) -> str:
        """Return the last line and the time since it, an empty text where that is short or another display runs."""
        seconds = time.monotonic() - self.since
        if self.paused or seconds < 1:
            return ""
        last = self.line.strip().rpartition("\n")[2]
        last = last if len(last) <= _SHOWN else f"{last[: _SHOWN - 3]}..."
        return f"{last}: {seconds:.0f} s" if last else f"working: {seconds:.0f} s"


_silence = _Silence()


class _Console(Console):
    """A console whose texts, which may be those of a bundle or a corpus, do not control the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        safe = [escaped(each, lines=True) if isinstance(each, str) else each for each in objects]
        super().print(*safe, **options)
        if safe and isinstance(safe[-1], str):
            _silence.ended_by(safe[-1])


console = _Console(soft_wrap=True, markup=False, highlight=False)
"""Prints texts as they are, without breaking lines."""

progress = _Console(soft_wrap=True, markup=False, highlight=False, stderr=True)
"""Prints on standard error what a command does, where its standard output is a result."""


@contextlib.contextmanager
def alive() -> Iterator[None]:
    """Show within the block that a command goes on while it prints nothing: each second on a terminal.

    Elsewhere a line on standard error says so every five seconds.
    """
    _silence.ended_by("")
    if progress.is_terminal:
        with Live(
            console=progress,
            transient=True,
            get_renderable=lambda: Text(shown) if (shown := _silence.text()) else Group(),
            redirect_stdout=sys.stdout.isatty(),
        ):
            yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_say_so, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _say_so(ended: threading.Event) -> None:
    seen, due = _silence.since, _SILENCE
    while not ended.wait(0.25):
        if _silence.since != seen or _silence.paused:
            seen, due = _silence.since, _SILENCE
        elif time.monotonic() - seen >= due and (text := _silence.text()):
            print(text, file=sys.stderr, flush=True)
            due += _SILENCE


@contextlib.contextmanager
def shown_otherwise() -> Iterator[None]:
    """Leave it to another display, within the block, to show that a command goes on."""
    _silence.paused += 1
    try:
        yield
    finally:
        _silence.paused -= 1
        _silence.ended_by("")


def print_lines(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print tab-separated lines; a tab or a line break inside a cell becomes a space."""
    for row in (header, *rows):
        print("\t".join(escaped(" ".join(cell.split())) for cell in row))  # the console makes spaces of tabs
