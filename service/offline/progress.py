"""Progress on standard error: a line that is renewed on a terminal, elsewhere a line every five seconds."""

import sys
import time
from datetime import timedelta

__all__ = ["Progress"]

_TERMINAL, _LOG = 0.2, 5.0
"""Seconds between two reports."""


class Progress:
    """Counts lines, or what `unit` names, and reports."""

    def __init__(self, total: int | None, done: int = 0, unit: str = "lines") -> None:
        self._unit = unit
        self._total, self._first, self._done = total, done, done
        self._terminal = sys.stderr.isatty()
        self._started = self._reported = time.monotonic()

    def add(self, lines: int) -> None:
        """Count lines, and report them if the last report is long ago."""
        self._done += lines
        now = time.monotonic()
        if now - self._reported >= (_TERMINAL if self._terminal else _LOG):
            self._reported = now
            self._show(self._text(now - self._started))

    def end(self) -> None:
        """Clear the line of a terminal."""
        if self._terminal:
            self._show("")

    def _text(self, seconds: float) -> str:
        rate = (self._done - self._first) / seconds
        if self._total is None:
            return f"{self._done:,} {self._unit}, {rate:,.0f} {self._unit}/s"
        left = timedelta(seconds=round((self._total - self._done) / rate)) if rate else "unknown"
        return f"{self._done:,} of {self._total:,} {self._unit}, {rate:,.0f} {self._unit}/s, {left} left"

    def _show(self, text: str) -> None:
        print(
            f"\r\x1b[K{text}" if self._terminal else text,
            end="" if self._terminal else "\n",
            file=sys.stderr,
            flush=True,
        )
