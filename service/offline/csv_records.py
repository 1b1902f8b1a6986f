"""Texts of CSV files with a header: a named column, quoted fields with line breaks, and several delimiters."""

import csv
from collections.abc import Iterable, Iterator, Sequence

from service.offline.lines import Line
from service.offline.options import UsageError

__all__ = ["read_records"]

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


def read_records(lines: Iterable[Line], column: str | None, where: str) -> Iterator[Line]:
    """Yield the text of each record in a column, which has the number of its first line.

    `column` is a name in the header, in whatever case, or a number from 1 on; by default `text`, else `source`. The
    delimiter is the one of comma, semicolon, tab and vertical bar with which the header has the column. Blank lines are
    skipped. Raises `UsageError`, with `where` as the file, where the header has no such column; a record that is not
    CSV, or has another number of fields, has an error.
    """
    csv.field_size_limit(max(_LONGEST, csv.field_size_limit()))
    source = _Source(lines)
    header = _header_line(source)
    if header is None:
        return
    if wrong := source.error():
        raise UsageError(f"{where}, line {wrong[0]}: {wrong[1]}")
    delimiter, place, width = _layout(header, column, where)
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
            yield Line(number, error=reason)
        elif fields:
            yield Line(number, fields[place])


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


def _layout(header: str, column: str | None, where: str) -> tuple[str, int, int]:
    """Return the delimiter, the index of the column, and the number of columns."""
    found = [(delimiter, _fields(header, delimiter)) for delimiter in _DELIMITERS]
    for wanted in _COLUMNS if column is None else (column.strip().casefold(),):
        for delimiter, fields in found:
            if wanted in (names := [field.casefold() for field in fields]):
                return delimiter, names.index(wanted), len(names)
    delimiter, most = max(found, key=lambda each: len(each[1]))
    if column is not None and column.isdecimal() and 0 < int(column) <= len(most):
        return delimiter, int(column) - 1, len(most)
    wanted = repr(column or _COLUMNS[0])
    raise UsageError(
        f"{where}, line 1: the header has no column {wanted}, but {', '.join(most) or 'none'}; --column names the "
        "column of the texts, and --input-format text reads a text on each line"
    )


def _fields(header: str, delimiter: str) -> Sequence[str]:
    try:
        return [field.strip() for field in next(csv.reader([header], delimiter=delimiter, strict=True))]
    except csv.Error:  # `"a";"b"` with commas
        return []
