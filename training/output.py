"""The console of all commands."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from models.escaping import escaped

__all__ = ["console", "print_lines", "progress"]


class _Console(Console):
    """A console whose texts, which may be those of a bundle or a corpus, do not control the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(escaped(each, lines=True) if isinstance(each, str) else each for each in objects), **options)


console = _Console(soft_wrap=True, markup=False, highlight=False)
"""Prints texts as they are, without breaking lines."""

progress = _Console(soft_wrap=True, markup=False, highlight=False, stderr=True)
"""Prints on standard error what a command does, where its standard output is a result."""


def print_lines(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print tab-separated lines; a tab or a line break inside a cell becomes a space."""
    for row in (header, *rows):
        print("\t".join(escaped(" ".join(cell.split())) for cell in row))  # the console makes spaces of tabs
