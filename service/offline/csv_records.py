"""Texts of CSV files with a header: a named column, quoted fields with line breaks, and several delimiters."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from service.offline.lines import Line
from service.offline.options import UsageError

__all__ = ["Record", "read_columns", "read_records"]

_DELIMITERS = (",", ";", "\t", "|")
_COLUMNS = ("text", "source")
"""Columns that are read without a choice, by their names in the files that `softserve-train` reads."""
_LONGEST = 1 << 24
"""Characters of a field; the default of Python's module, 131,072, is less than a long text has."""


class _Source:
    """The lines of a file as the parser of CSV takes them, and the first error of those that it took."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = iter(lines)
        self.number = 0
        """The number of the last line that was taken."""
        self._wrong: Line | None = None

    def error(self) -> tuple[int, str] | None:
        """Return the number and the error of the first line with one since the last call."""
        line, self._wrong = self._wrong, None
        return None if line is None or line.error is None else (line.number, line.error)

    def __iter__(self) -> "_Source":
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number = line.number
        if line.error is not None and self._wrong is None:
            self._wrong = line
        return f"{line.text}\n"


@dataclass(frozen=True, slots=True)
class Record:
    """Values of some columns of a record, or the reason why it cannot be read."""

    number: int
    """Number of its first line, from 1 on."""
    values: Sequence[str] = ()
    error: str | None = None


def read_records(lines: Iterable[Line], column: str | None, where: str) -> Iterator[Line]:
    """Yield the text of each record in a column, which has the number of its first line.

    `column` is a name in the header, in whatever case, or a number from 1 on; by default `text`, else `source`. Raises
    `UsageError` as `read_columns` does.
    """
    wanted = _COLUMNS if column is None else (column,)
    advice = "--column names the column of the texts, and --input-format text reads a text on each line"
    for record in read_columns(lines, [wanted], where, advice):
        yield Line(record.number, record.values[0] if record.values else "", record.error)


def read_columns(lines: Iterable[Line], columns: Sequence[Sequence[str]], where: str, advice: str) -> Iterator[Record]:
    """Yield the values of each record in some columns.

    Each column has one or several names, of which the first one that the header has counts, in whatever case; or a
    number from 1 on. The delimiter is the one of comma, semicolon, tab and vertical bar with which the header has the
    first column. Blank lines are skipped. Raises `UsageError`, with `where` as the file and `advice` after it, where
    the header has no such column; a record that is not CSV, or has another number of fields, has an error.
    """
    csv.field_size_limit(max(_LONGEST, csv.field_size_limit()))
    source = _Source(lines)
    header = _header_line(source)
    if header is None:
        return
    if wrong := source.error():
        raise UsageError(f"{where}, line {wrong[0]}: {wrong[1]}")
    delimiter, places, width = _layout(header, columns, where, advice)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        number, reason = source.number + 1, None
        try:
            fields = next(reader, None)
        except csv.Error as error:
            fields, reason = [], f"the record that begins here is not CSV: {error}"
        if fields is None:
            return
        if wrong := source.error():
            reason = wrong[1] if wrong[0] == number else f"line {wrong[0]}: {wrong[1]}"
        elif fields and len(fields) != width:
            reason = f"{len(fields)} fields, but the header has {width}"
        if reason is not None:
            yield Record(number, error=reason)
        elif fields:
            yield Record(number, [fields[place] for place in places])


def _header_line(source: _Source) -> str | None:
    """Return the first record that is not blank, which may have several lines; None where there is none."""
    for line in source:
        if not line.strip():
            continue
        header = line
        while header.count('"') % 2 and (more := next(source, None)) is not None:
            header += more
        return header
    return None


def _layout(header: str, columns: Sequence[Sequence[str]], where: str, advice: str) -> tuple[str, Sequence[int], int]:
    """Return the delimiter, the indices of the columns, and the number of columns."""
    found = {delimiter: _fields(header, delimiter) for delimiter in _DELIMITERS}
    delimiter = next((each for name in columns[0] for each in _DELIMITERS if _has(found[each], name)), None)
    if delimiter is None:
        delimiter = max(found, key=lambda each: len(found[each]))
    fields = found[delimiter]
    return delimiter, [_place(fields, names, where, advice) for names in columns], len(fields)


def _has(fields: Sequence[str], name: str) -> bool:
    return name.strip().casefold() in map(str.casefold, fields)


def _place(fields: Sequence[str], names: Sequence[str], where: str, advice: str) -> int:
    for name in names:
        if _has(fields, name):
            return list(map(str.casefold, fields)).index(name.strip().casefold())
    if names[0].isdecimal() and 0 < int(names[0]) <= len(fields):
        return int(names[0]) - 1
    raise UsageError(
        f"{where}, line 1: the header has no column {names[0]!r}, but {', '.join(fields) or 'none'}; {advice}"
    )


def _fields(header: str, delimiter: str) -> Sequence[str]:
    try:
        return [field.strip() for field in next(csv.reader([header], delimiter=delimiter, strict=True))]
    except csv.Error:  # `"a";"b"` with commas
        return []
