"""CSV files with a header: named columns, quoted fields, commas or other delimiters, and errors with line numbers."""

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from training.data.tables import Row, Table, missing_column
from training.data.text_files import format_suffix

__all__ = ["is_csv", "likely_delimiter", "named_rows", "read_csv", "rows_without_header"]

_DELIMITERS = (",", ";", "\t", "|")
_LOOKED_AT = 200
"""Records by which the delimiter is found."""
_LINE_BREAK = re.compile(r"\s*[\r\n]+\s*")


class _NotCsv(ValueError):
    """A record whose quotes do not match, or of another delimiter."""


def is_csv(path: Path) -> bool:
    """Return whether a file is read as CSV, by its name."""
    return format_suffix(path) == ".csv"


def likely_delimiter(path: Path, text: str, delimiters: Sequence[str] = _DELIMITERS) -> str:
    """Return the delimiter that divides most of the first records into the same number of fields, more than one."""

    def agreement(delimiter: str) -> tuple[float, int]:
        widths: list[int] = []
        with contextlib.suppress(_NotCsv):
            widths = [len(fields) for _, fields in itertools.islice(_records(path, text, delimiter), _LOOKED_AT)]
        width = max(set(widths), key=widths.count, default=1)
        return (widths.count(width) / len(widths) if width > 1 else 0.0), width

    return max(delimiters, key=agreement)


def named_rows(path: Path, text: str, delimiter: str) -> Table:
    """Return the table of a CSV file with a header; records of another number of fields are cut or lack columns."""
    records = _records(path, text, delimiter)
    columns = tuple(field.strip() for field in next(records)[1])
    rows = ((number, dict(zip(columns, fields, strict=False))) for number, fields in records)
    return Table(path, columns, rows)


def rows_without_header(path: Path, text: str, names: Sequence[str]) -> Table:
    """Return the table of a file without a header: its columns are numbered from `1` on.

    With exactly as many columns as `names` has, these are their names too. Raises `ValueError` for a record of another
    number of fields than the first.
    """
    delimiter = likely_delimiter(path, text) if is_csv(path) else "\t"
    records = list(_records(path, text, delimiter))
    width = len(records[0][1])
    columns = tuple(map(str, range(1, width + 1)))
    rows: list[tuple[int, Row]] = []
    for number, fields in records:
        if len(fields) != width:
            raise ValueError(f"{path}, line {number}: {len(fields)} fields, but line 1 has {width}")
        row = dict(zip(columns, fields, strict=True))
        if width == len(names):
            row |= dict(zip(names, fields, strict=True))
        rows.append((number, row))
    return Table(path, (*columns, *names) if width == len(names) else columns, rows)


def read_csv(
    path: Path, text: str, names: Sequence[str], columns: Mapping[str, str]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield for each record its line number and the values of the columns `names`, other columns are left out.

    `columns` are the header's names for them, where it has others. The delimiter is the one of comma, semicolon, tab
    and vertical bar with which the header has these columns. Blank lines are skipped; line breaks inside quoted fields
    become spaces. Raises `ValueError` naming the line: for a header without the columns, a record of another number
    of fields, and quotes that do not match.
    """
    unknown = sorted(columns.keys() - set(names))
    if unknown:
        raise ValueError(f"data.files.columns: there is no {unknown[0]!r} here, but {', '.join(names)}")
    delimiter, places, width = _header(path, text, names, columns)
    for number, fields in _records(path, text, delimiter):
        if number == 1:
            continue
        if len(fields) != width:
            raise ValueError(f"{path}, line {number}: {len(fields)} fields, but the header has {width}")
        yield number, tuple(_LINE_BREAK.sub(" ", fields[place]).strip() for place in places)


def _header(path: Path, text: str, names: Sequence[str], columns: Mapping[str, str]) -> tuple[str, list[int], int]:
    """Return the delimiter, the places of the wanted columns, and the number of columns."""
    wanted = [columns.get(name, name) for name in names]
    found: list[list[str]] = []
    for delimiter in _DELIMITERS:
        with contextlib.suppress(_NotCsv):  # `"a";"b"` with commas
            _, fields = next(_records(path, text, delimiter))
            found.append([field.strip() for field in fields])
            header = [field.casefold() for field in found[-1]]
            if all(name.casefold() in header for name in wanted):
                return delimiter, [header.index(name.casefold()) for name in wanted], len(header)
    most = max(found, key=len, default=[])
    own = set(map(str.casefold, most))
    own_name = next(name for name, wanted_name in zip(names, wanted, strict=True) if wanted_name.casefold() not in own)
    raise ValueError(missing_column(f"{path}, line 1: the header", own_name, columns, most))


def _records(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line and the fields of each record that has a field with content."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _NotCsv(f"{path}, line {number}: the record that begins here is not CSV: {error}") from error
        if any(field.strip() for field in fields):
            yield number, fields
