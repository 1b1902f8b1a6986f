"""Texts of files: lines, a column of tab-separated values, or a field of JSON lines."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TextIO

from service.offline.options import UsageError

__all__ = ["InputFormat", "line_count", "read_texts"]

InputFormat = Literal["auto", "text", "tsv", "jsonl"]

_ENDINGS: Mapping[str, InputFormat] = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
"""The format of each ending of a file's name; others are text."""


def read_texts(file: Path | None, form: InputFormat, *, column: int, field: str) -> Iterator[str]:
    """Yield the text of each line of a file, or of standard input.

    `column` is that of tab-separated values, from 1 on; `field` that of JSON objects. Raises `UsageError` naming the
    line where a text is missing, and `OSError`.
    """
    extract = _extractor(_format_of(file, form), column, field)
    with _opened(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield extract(line.rstrip("\r\n"))
            except (ValueError, LookupError) as error:
                raise UsageError(f"{file or 'standard input'}, line {number}: {error}") from None


def line_count(file: Path | None) -> int | None:
    """Return the number of lines of a file; None for standard input."""
    if file is None:
        return None
    with file.open("rb") as content:
        blocks = iter(lambda: content.read(1 << 20), b"")
        count, last = 0, b"\n"
        for block in blocks:
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


@contextmanager
def _opened(file: Path | None) -> Iterator[TextIO]:
    if file is None:
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")  # type: ignore[union-attr]
        yield sys.stdin
        return
    with file.open(encoding="utf-8", newline="\n") as lines:
        yield lines


def _format_of(file: Path | None, form: InputFormat) -> InputFormat:
    if form != "auto":
        return form
    return "text" if file is None else _ENDINGS.get(file.suffix.lower(), "text")


def _extractor(form: InputFormat, column: int, field: str) -> Callable[[str], str]:
    def from_tsv(line: str) -> str:
        cells = line.split("\t")
        if len(cells) < column:
            raise ValueError(f"there are {len(cells)} columns, not {column}")
        return cells[column - 1]

    def from_json(line: str) -> str:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"this is not JSON: {error}") from None
        text = found.get(field) if isinstance(found, dict) else found
        if not isinstance(text, str):
            raise ValueError(f"there is no text in the field {field!r} (--field)")
        return text

    return {"tsv": from_tsv, "jsonl": from_json}.get(form, str)
