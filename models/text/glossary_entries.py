"""Entries of glossaries as text: a term and its translation in each row, separated by tabs or by commas."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from models.errors import QueryError

__all__ = ["EntryFormat", "check_term", "entry_format", "read_entries", "written_entries"]

EntryFormat = Literal["tsv", "csv"]
"""Tab-separated values without quotation marks, and comma-separated values with them (RFC 4180)."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that terms do not have: they would end a row, and no text has them within a line."""
_COLUMNS: Mapping[EntryFormat, tuple[int, ...]] = {"tsv": (2,), "csv": (2, 4)}
"""Numbers of columns: rows of CSV may have the codes of both languages after the terms."""


def check_term(term: str) -> None:
    """Raise `QueryError` for a term that is empty or has control characters."""
    if not term.strip():
        raise QueryError("glossary: a term or a translation is empty")
    if _CONTROL.search(term):
        raise QueryError(f"glossary: {term[:20]!r} has a control character")


def entry_format(name: str) -> EntryFormat:
    """Return the format of a name; raises `QueryError` for another one."""
    found = next((each for each in get_args(EntryFormat) if each == name), None)
    if found is None:
        raise QueryError(f"glossary: the format {name[:20]!r} is none of {', '.join(get_args(EntryFormat))}")
    known: EntryFormat = found
    return known


def read_entries(text: str, form: EntryFormat) -> dict[str, str]:
    """Return the translations by term of rows of text; empty rows are left out.

    Raises `QueryError` for another number of columns, empty cells and terms that are there twice.
    """
    found: dict[str, str] = {}
    try:
        for line, cells in _rows(text, form):
            if len(cells) not in _COLUMNS[form] or not all(cells[:2]):
                raise QueryError(f"line {line}: a term and its translation are expected, not {len(cells)} columns")
            if cells[0] in found:
                raise QueryError(f"line {line}: the term {cells[0][:100]!r} is there twice")
            found[cells[0]] = cells[1]
    except csv.Error as error:
        raise QueryError(f"the glossary cannot be read: {error}") from None
    return found


def _rows(text: str, form: EntryFormat) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the stripped cells of each row that is not empty."""
    file = io.StringIO(text.removeprefix("\ufeff"), newline="")
    rows = csv.reader(file, strict=True) if form == "csv" else csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE)
    for row in rows:
        cells = [cell.strip() for cell in row]
        if any(cells):
            yield rows.line_num, cells


def written_entries(entries: Mapping[str, str], form: EntryFormat) -> str:
    """Return rows of the translations by term, which have no control characters."""
    if form == "tsv":
        return "".join(f"{term}\t{translation}\n" for term, translation in entries.items())
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows(entries.items())
    return file.getvalue()
