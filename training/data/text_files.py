"""A user's own text files: lines, tab-separated columns, or CSV; decoding, and errors with line numbers."""

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from training.data.csv_files import is_csv, read_csv
from training.data.settings import SplitFiles

__all__ = ["can_be_iterated", "iterate_rows", "read_records", "read_rows"]

RecordT = TypeVar("RecordT")
ValueT = TypeVar("ValueT")

_SHOWN = 5
"""Number of wrong lines that an error shows."""


def read_records(
    path: Path, names: Sequence[str], parse: Callable[[Sequence[str]], RecordT], files: SplitFiles | None = None
) -> list[RecordT]:
    """Return the parsed columns of each line of a tab-separated file, or of each record of a CSV file.

    `names` are the columns of a CSV file; `files` has the encoding, and the header's names for them where it has
    others. Raises the errors of `read_rows` and `read_csv`.
    """
    encoding = "utf-8" if files is None else files.encoding
    if not is_csv(path):
        return read_rows(path, lambda line: parse(line.split("\t")), encoding)
    text = "\n".join(read_rows(path, str, encoding))
    found = _parsed(path, read_csv(path, text, names, {} if files is None else files.columns), parse)
    if not found:
        raise ValueError(f"{path} has a header only")
    return found


def read_rows(path: Path, parse: Callable[[str], RecordT], encoding: str = "utf-8") -> list[RecordT]:
    """Return the parsed lines of a file, without a byte order mark and empty lines at its end.

    Raises `ValueError` naming the lines for which `parse` raises it, `FileNotFoundError` where there is no file.
    """
    lines = enumerate(_content(path, encoding).split(b"\n"), 1)
    return _parsed(path, lines, lambda line: parse(_decoded(line)))


def can_be_iterated(path: Path, encoding: str) -> bool:
    """Return whether `iterate_rows` can read a file: one that exists, is in UTF-8 and is not CSV.

    A byte order mark of UTF-16 counts more than the encoding that is given.
    """
    if is_csv(path) or codecs.lookup(encoding).name != "utf-8" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(2) not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def iterate_rows(path: Path, parse: Callable[[str], RecordT]) -> Iterator[RecordT]:
    """Yield the parsed lines of a file without holding it in memory, without a byte order mark.

    Raises `ValueError` naming the first line for which `parse` raises it.
    """
    with path.open("rb") as file:
        if file.read(3) != codecs.BOM_UTF8:
            file.seek(0)
        for number, line in enumerate(file, 1):
            try:
                row = parse(_decoded(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
            yield row


def _parsed(path: Path, numbered: Iterable[tuple[int, ValueT]], parse: Callable[[ValueT], RecordT]) -> list[RecordT]:
    rows: list[RecordT] = []
    wrong: list[str] = []
    for number, value in numbered:
        try:
            rows.append(parse(value))
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more lines" if len(wrong) > _SHOWN else ""
        raise ValueError(f"{path}, {'; '.join(wrong[:_SHOWN])}{more}")
    return rows


def _content(path: Path, encoding: str) -> bytes:
    """Return the content of a file, changed to UTF-8 from another encoding."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; relative paths of data.files start at --data-dir")
    content = path.read_bytes()
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    if codecs.lookup(encoding).name != "utf-8":
        try:
            content = content.decode(encoding).encode("utf-8")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise ValueError(f"{path}, line {line}: it is not {encoding}") from error
    content = content.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n")
    if not content:
        raise ValueError(f"{path} is empty")
    return content


def _decoded(line: bytes) -> str:
    """Return the text of a line; raises `ValueError` naming the first byte that is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"byte {error.start + 1} is not UTF-8; data.files.encoding is for another encoding, such as cp1252"
        ) from error
