"""Tables: the same rows on the terminal and in a CSV file."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table
from rich.text import Text

from training.output import console, print_lines

__all__ = ["Cell", "Rows", "cell_text"]

Cell = str | int | float | bool | None
"""None is an empty cell."""


def cell_text(value: Cell) -> str:
    """Return a cell as the terminal shows it: four significant digits, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.1f}" if 1e3 <= abs(value) < 1e6 else f"{value:.4g}"
    return str(value)


@dataclass(slots=True)
class Rows:
    """A table's columns and rows."""

    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)

    def add(self, cells: Iterable[Cell]) -> None:
        self.rows.append(tuple(cells))
        assert len(self.rows[-1]) == len(self.columns)

    def table(self, title: str, headers: Mapping[str, str] | None = None) -> Table:
        """Return a table of `rich`, numbers to the right; `headers` are shorter names for columns."""
        # Text, not markup, which `[` would begin.
        table = Table(title=Text(title), title_justify="left")
        for index, name in enumerate(self.columns):
            numbers = all(isinstance(row[index], int | float | None) for row in self.rows)
            table.add_column(
                Text((headers or {}).get(name, name)), justify="right" if numbers else "left", overflow="fold"
            )
        for row in self.rows:
            table.add_row(*(Text(cell_text(cell)) for cell in row))
        return table

    def show(self, title: str, headers: Mapping[str, str] | None = None) -> None:
        """Print the table on a terminal, elsewhere the title and whole tab-separated lines with numbers in full."""
        if console.is_terminal:
            console.print(self.table(title, headers), soft_wrap=False)
            return
        console.print(title)
        print_lines(self.columns, (["" if cell is None else str(cell) for cell in row] for row in self.rows))

    def write_csv(self, path: Path) -> Path:
        """Write all rows, numbers in full, empty cells for None; makes the directory where it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(self.rows)
        return path
