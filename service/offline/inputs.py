"""Texts of files: lines, a column of tab-separated values or of CSV, or a field of JSON lines."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from service.offline.csv_records import read_records
from service.offline.lines import Line, check_encoding, has_plain_lines, read_lines
from service.offline.options import FileOptions, UsageError

__all__ = ["ENDINGS", "line_count", "opened_input", "read_texts"]

ENDINGS: Mapping[str, Literal["tsv", "csv", "jsonl"]] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
"""The format of each ending of a file's name; others are text."""


def read_texts(file: Path | None, options: FileOptions) -> Iterator[Line]:
    """Yield the text of each line, or of each record of CSV, of a file or of standard input.

    A line whose text cannot be read has an error; the lines after it are read all the same. Raises `UsageError` where
    nothing can be read: for an unknown encoding, a header without the column, and options that do not fit the format.
    Raises `OSError`.
    """
    check_encoding(options.encoding)
    form, where = _format_of(file, options), str(file or "standard input")
    with opened_input(file) as stream:
        lines = read_lines(stream, options.encoding)
        if form == "csv":
            yield from read_records(lines, options.column, where)
            return
        if form == "text":
            yield from lines
            return
        if form == "tsv":
            column = options.column or "1"
            extract = _cell(_place(column, lines, where), column)
        else:
            extract = _from_json(options.field)
        yield from (_extracted(line, extract) for line in lines)


def line_count(file: Path | None, options: FileOptions) -> int | None:
    """Return the number of texts of a file; None where it is known at the end alone, as of CSV and of pipes."""
    by_name = _format_of(file, options) == "tsv" and not (options.column or "1").isdecimal()
    if file is None or not file.is_file() or by_name or _format_of(file, options) == "csv":
        return None
    if not has_plain_lines(options.encoding):
        return None
    with file.open("rb") as content:
        blocks = iter(lambda: content.read(1 << 20), b"")
        count, last = 0, b"\n"
        for block in blocks:
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


@contextmanager
def opened_input(file: Path | None) -> Iterator[BinaryIO]:
    """Open a file, or standard input; raises `UsageError` where that is closed, `OSError`."""
    if file is None:
        if sys.stdin is None:
            raise UsageError("standard input is closed; give a file, or texts with --text")
        yield sys.stdin.buffer
        return
    with file.open("rb") as content:
        yield content


def _format_of(file: Path | None, options: FileOptions) -> Literal["text", "tsv", "csv", "jsonl"]:
    if options.input_format != "auto":
        return options.input_format
    return "text" if file is None else ENDINGS.get(file.suffix.lower(), "text")


def _extracted(line: Line, extract: Callable[[str], str]) -> Line:
    if line.error is not None:
        return line
    try:
        return Line(line.number, extract(line.text))
    except ValueError as error:
        return Line(line.number, error=str(error))


def _place(column: str, lines: Iterator[Line], where: str) -> int:
    """Return the index of a column of tab-separated values; one that is named takes the first line as the header."""
    if column.isdecimal():
        if int(column) < 1:
            raise UsageError(f"--column: columns are numbered from 1 on, not {column}")
        return int(column) - 1
    header = next(lines, Line(1))
    names = [name.strip() for name in header.text.split("\t")]
    if column not in names:
        raise UsageError(f"{where}, line 1: the header has no column {column!r}, but {', '.join(names)}")
    return names.index(column)


def _cell(place: int, column: str) -> Callable[[str], str]:
    def from_tsv(line: str) -> str:
        cells = line.split("\t")
        if len(cells) <= place:
            raise ValueError(f"there are {len(cells)} columns, and none is {column} (--column)")
        return cells[place]

    return from_tsv


def _from_json(field: str) -> Callable[[str], str]:
    def from_json(line: str) -> str:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"this is not JSON: {error}") from None
        text = found.get(field) if isinstance(found, dict) else found
        if not isinstance(text, str):
            raise ValueError(f"there is no text in the field {field!r} (--field)")
        return text

    return from_json
