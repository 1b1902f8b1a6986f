"""CSV files with a header: named columns, quoted fields, commas or other delimiters, and errors with line numbers."""

import contextlib
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["is_csv", "read_csv"]

_DELIMITERS = (",", ";", "\t", "|")
_LINE_BREAK = re.compile(r"\s*[\r\n]+\s*")


class _NotCsv(ValueError):
    """A record whose quotes do not match, or of another delimiter."""


def is_csv(path: Path) -> bool:
    """Return whether a file is read as CSV, by its name."""
    return path.suffix.lower() == ".csv"


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
    wanted = [columns.get(name, name) for name in names]
    delimiter, places, width = _header(path, text, wanted, names)
    for number, fields in _records(path, text, delimiter):
        if number == 1:
            continue
        if len(fields) != width:
            raise ValueError(f"{path}, line {number}: {len(fields)} fields, but the header has {width}")
        yield number, tuple(_LINE_BREAK.sub(" ", fields[place]).strip() for place in places)


def _header(path: Path, text: str, wanted: Sequence[str], names: Sequence[str]) -> tuple[str, list[int], int]:
    """Return the delimiter, the places of the wanted columns, and the number of columns."""
    found: list[list[str]] = []
    for delimiter in _DELIMITERS:
        with contextlib.suppress(_NotCsv):  # `"a";"b"` with commas
            _, fields = next(_records(path, text, delimiter))
            found.append([field.strip() for field in fields])
            header = [field.casefold() for field in found[-1]]
            if all(name.casefold() in header for name in wanted):
                return delimiter, [header.index(name.casefold()) for name in wanted], len(header)
    most = max(found, key=len, default=[])
    missing = next(name for name in wanted if name.casefold() not in map(str.casefold, most))
    raise ValueError(
        f"{path}, line 1: the header has no column {missing!r}, but {', '.join(most) or 'none'}; "
        f"data.files.columns names it, such as {{{names[-1]}: {most[-1] if most else 'its name'}}}"
    )


def _records(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line and the fields of each record that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _NotCsv(f"{path}, line {number}: the record that begins here is not CSV: {error}") from error
        if fields:
            yield number, fields
