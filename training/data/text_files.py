"""A user's own text files: decoding, decompression, lines, and errors with line numbers."""

import codecs
import gzip
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

__all__ = ["can_be_iterated", "format_suffix", "has_lines", "iterate_rows", "parsed", "read_content", "read_rows"]

RecordT = TypeVar("RecordT")
ValueT = TypeVar("ValueT")

_SHOWN = 5
"""Number of wrong lines that an error shows."""
_WITHOUT_LINES = (".parquet", ".tmx", ".xlf", ".xliff")
_NOT_PLAIN = (".csv", ".gz", ".jsonl", ".ndjson", *_WITHOUT_LINES)


def format_suffix(path: Path) -> str:
    """Return the ending of a file's name that says its format, in lower case, without `.gz`."""
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return name.suffix.lower()


def read_rows(path: Path, parse: Callable[[str], RecordT], encoding: str = "utf-8") -> list[RecordT]:
    """Return the parsed lines of a file, without a byte order mark and empty lines at its end.

    Raises `ValueError` naming the lines for which `parse` raises it, `FileNotFoundError` where there is no file.
    """
    lines = enumerate(read_content(path, encoding).split(b"\n"), 1)
    return parsed(path, lines, lambda line: parse(_decoded(line)))


def has_lines(path: Path) -> bool:
    """Return whether a file has lines of text, by its name: neither a folder nor a binary or XML format."""
    return path.is_file() and format_suffix(path) not in _WITHOUT_LINES


def can_be_iterated(path: Path, encoding: str) -> bool:
    """Return whether `iterate_rows` can read a file: one that exists, is in UTF-8 and is plain text.

    A byte order mark of UTF-16 counts more than the encoding that is given.
    """
    if path.suffix.lower() in _NOT_PLAIN or codecs.lookup(encoding).name != "utf-8" or not path.is_file():
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


def parsed(
    path: Path, numbered: Iterable[tuple[int, ValueT]], parse: Callable[[ValueT], RecordT], noun: str = "line"
) -> list[RecordT]:
    """Return the parsed values; raises `ValueError` naming the lines for which `parse` raises it, and counts the rest.

    `noun` is the noun for a numbered value.
    """
    rows: list[RecordT] = []
    wrong: list[str] = []
    for number, value in numbered:
        try:
            rows.append(parse(value))
        except ValueError as error:
            wrong.append(f"{noun} {number}: {error}")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more {noun}s" if len(wrong) > _SHOWN else ""
        raise ValueError(f"{path}, {'; '.join(wrong[:_SHOWN])}{more}")
    return rows


def read_content(path: Path, encoding: str, *, binary: bool = False) -> bytes:
    """Return the content of a file, decompressed, and changed to UTF-8 from another encoding unless it is binary.

    Raises `FileNotFoundError` where there is no file, `ValueError` for an empty one and for another encoding.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; relative paths of data.files start at --data-dir")
    content = path.read_bytes()
    if path.suffix.lower() == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise ValueError(f"{path} is not a complete gzip file: {error}") from error
    if binary:
        return content
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
