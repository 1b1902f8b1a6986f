"""A line for each result: tab-separated values, JSON, or columns that a person reads."""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from models.escaping import escaped
from service.offline.options import FileOptions, UsageError

__all__ = ["Shown", "csv_line", "line_of", "opened_output", "standard_output"]

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Shown:
    """A result: its cells, and a function that makes the same as a JSON object."""

    def __init__(self, cells: Sequence[object], record: Callable[[], Mapping[str, object]]) -> None:
        self.cells, self.record = cells, record


def line_of(shown: Shown, form: str) -> str:
    """Return a result as a line without its end; tabs and line ends within it are escaped.

    In a table, which is for terminals, all control characters are escaped.
    """
    if form == "jsonl":
        record = shown.record()
        line = json.dumps(record, ensure_ascii=False)
        return line if _is_encodable(line) else json.dumps(record)
    cells = [f"{cell:.4f}" if isinstance(cell, float) else str(cell).translate(_ESCAPES) for cell in shown.cells]
    return "  ".join(map(escaped, cells)) if form == "table" else "\t".join(cells)


def csv_line(cells: Sequence[object]) -> str:
    """Return a row of CSV with its end; None is an empty cell."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _is_encodable(text: str) -> bool:
    """Return whether UTF-8 has the text, which it has not where half of a surrogate pair stands alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def standard_output(form: str) -> tuple[TextIO, str]:
    """Return standard output, which is UTF-8 from now on, and its format."""
    if sys.stdout is None:
        raise UsageError("standard output is closed; --output names a file")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout, ("table" if sys.stdout.isatty() else "tsv") if form == "auto" else form


@contextmanager
def opened_output(options: FileOptions) -> Iterator[tuple[TextIO, int, str]]:
    """Yield the output, the number of lines that it has already, and the format.

    Raises `UsageError` for `resume` without a file, and for a file that is there without `resume`.
    """
    form = options.format
    if options.output is None:
        if options.resume:
            raise UsageError("--resume needs --output")
        output, used = standard_output(form)
        yield output, 0, used
        return
    done = _complete_lines(options.output, resume=options.resume)
    with options.output.open("a", encoding="utf-8", newline="\n") as file:
        yield file, done, _by_ending(options.output) if form == "auto" else form


def _by_ending(file: Path) -> str:
    return "jsonl" if file.suffix.lower() in (".jsonl", ".ndjson") else "tsv"


def _complete_lines(file: Path, *, resume: bool) -> int:
    """Return the number of complete lines of an output, of which a part of a line is cut off."""
    if not file.exists():
        return 0
    if not resume:
        raise UsageError(f"{file} is there already: --resume goes on with it")
    with file.open("r+b") as content:
        count = end = 0
        for line in content:
            if not line.endswith(b"\n"):
                break
            count, end = count + 1, end + len(line)
        os.ftruncate(content.fileno(), end)
    return count
