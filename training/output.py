"""The console of all commands."""

from collections.abc import Iterable, Sequence

from rich.console import Console

__all__ = ["console", "print_lines"]

console = Console(soft_wrap=True, markup=False, highlight=False)
"""Prints texts as they are, without breaking lines."""


def print_lines(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print tab-separated lines; a tab or a line break inside a cell becomes a space."""
    for row in (header, *rows):
        print("\t".join(" ".join(cell.split()) for cell in row))  # the console makes spaces of tabs
