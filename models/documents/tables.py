"""CSV and tab-separated values: some columns are translated; quotation marks, delimiters and line ends stay."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from models.documents.decoding import decoded
from models.documents.document import DocumentError, DocumentOptions, Segment
from models.documents.spliced import Place, SplicedDocument
from models.text.words import Span

__all__ = ["read_csv", "read_tsv"]

_DELIMITERS = (",", ";", "\t", "|")
_COLUMNS = ("text", "source")
"""Columns that are translated without a choice."""
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class _Cell:
    span: Span
    text: str
    is_quoted: bool


def read_csv(content: bytes, options: DocumentOptions) -> SplicedDocument:
    """Read CSV with a header, whose delimiter is that of the header; raises `DocumentError`."""
    file = decoded(content, options.encoding)
    header = file.text[: (file.text + "\n").index("\n")]
    bare = re.sub(r'"[^"]*"', "", header)
    return _read(file.text, max(_DELIMITERS, key=bare.count), options, content)


def read_tsv(content: bytes, options: DocumentOptions) -> SplicedDocument:
    """Read tab-separated values with a header; raises `DocumentError`."""
    return _read(decoded(content, options.encoding).text, "\t", options, content)


def _read(text: str, delimiter: str, options: DocumentOptions, content: bytes) -> SplicedDocument:
    file = decoded(content, options.encoding)
    rows = enumerate(_rows(text, delimiter), 1)
    header = [cell.text.strip() for cell in next(rows, (0, []))[1]]
    columns = _chosen(header, options.columns)
    segments: list[Segment] = []
    places: list[Place] = []
    for number, row in rows:
        for column in columns:
            if column >= len(row) or _LETTER.search(row[column].text) is None:
                continue
            cell = row[column]
            segments.append(Segment(cell.text, options.value_markup(cell.text), f"row {number}, {header[column]}"))
            places.append(Place(cell.span, partial(_written, delimiter=delimiter, is_quoted=cell.is_quoted)))
    return SplicedDocument(file, segments, places, options.limits)


def _chosen(header: Sequence[str], wanted: Sequence[str]) -> list[int]:
    names = [name.casefold() for name in header]
    if not wanted:
        found = [names.index(name) for name in _COLUMNS if name in names][:1] or ([0] if len(names) == 1 else [])
        if not found and header:
            raise DocumentError(f"name the columns to translate: the file has {', '.join(header)}")
        return found
    places = []
    for column in wanted:
        if column.casefold() in names:
            places.append(names.index(column.casefold()))
        elif column.isdecimal() and 1 <= int(column) <= len(header):
            places.append(int(column) - 1)
        else:
            raise DocumentError(f"the file has no column {column!r}, but {', '.join(header)}")
    return sorted(set(places))


def _rows(text: str, delimiter: str) -> Iterator[list[_Cell]]:
    """Yield the cells of each row (RFC 4180); a cell whose quotation marks are not closed is text as it stands."""
    other = re.escape(delimiter)
    quoted = re.compile(rf'"((?:[^"]|"")*+)"(?={other}|\r?\n|\Z)')
    plain = re.compile(rf"[^{other}\r\n]*")
    row: list[_Cell] = []
    place = 0
    while place < len(text):
        found = quoted.match(text, place)
        if found is not None:
            row.append(_Cell(found.span(), found[1].replace('""', '"'), True))
        else:
            found = plain.match(text, place)
            assert found is not None
            row.append(_Cell(found.span(), found[0], False))
        place = found.end()
        if text.startswith(delimiter, place):
            place += 1
            if place == len(text):
                row.append(_Cell((place, place), "", False))
        else:
            yield row
            row = []
            place += 2 if text.startswith("\r\n", place) else 1
    if row:
        yield row


def _written(text: str, *, delimiter: str, is_quoted: bool) -> str:
    if not is_quoted and delimiter == "\t":  # whose files often have no quotation marks at all
        return re.sub(r"[\t\r\n]+", " ", text)
    if is_quoted or any(sign in text for sign in (delimiter, '"', "\r", "\n")):
        return '"' + text.replace('"', '""') + '"'
    return text
