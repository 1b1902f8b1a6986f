"""Tests of tables."""

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from training.search.analyses.tables import Cell, Rows, cell_text


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "–"),
        (True, "True"),
        (3, "3"),
        ("word", "word"),
        (0.123456, "0.1235"),
        (1234.56, "1234.6"),
        (2.5e7, "2.5e+07"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
    ids=str,
)
def test_cells_are_short(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text


def test_the_terminal_shows_words_as_they_are() -> None:
    rows = Rows(["a word", "loop.rate"])
    rows.add(["[bold]", 1.0])
    rows.add(["]", None])
    console = Console(file=io.StringIO(), width=60)
    console.print(rows.table("runs/[a]", {"loop.rate": "rate"}))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert all(text in shown for text in ("runs/[a]", "[bold]", " rate ", "   – "))
    assert "loop" not in shown


def test_a_file_holds_numbers_in_full(tmp_path: Path) -> None:
    rows = Rows(["word", "p"])
    rows.add([",", 1 / 3])
    rows.add(['"', None])
    path = rows.write_csv(tmp_path / "new" / "table.csv")
    with path.open(newline="") as file:
        assert list(csv.reader(file)) == [["word", "p"], [",", repr(1 / 3)], ['"', ""]]


def test_a_file_gets_whole_tab_separated_lines(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Rows(["name", "value"])
    rows.add(["a " * 100 + "b", 0.123456789])
    rows.add(["tab\there", None])
    rows.show("[title]", {"value": "v"})
    assert capsys.readouterr().out == f"[title]\nname\tvalue\n{'a ' * 100}b\t0.123456789\ntab here\t\n"
