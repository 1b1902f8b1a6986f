"""Format, encoding, delimiter, header and columns of a user's file, by its name and content."""

import codecs
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data.csv_files import is_csv, likely_delimiter, named_rows, rows_without_header
from training.data.encodings import is_guess, likely_encoding, spelled_by_guess
from training.data.own_images import holds_images, images_in_folders
from training.data.records import open_table
from training.data.settings import SplitFiles
from training.data.tables import Table
from training.data.text_files import format_suffix, read_content, read_rows

__all__ = ["IMAGE_FOLDER", "Inspected", "inspect_file", "likely_suffix"]

IMAGE_FOLDER = "a folder of images for each class"

_DELIMITER_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_FORMATS = {
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".parquet": "Parquet",
    ".tmx": "TMX",
    ".xlf": "XLIFF",
    ".xliff": "XLIFF",
}
_HEADER_NAMES = frozenset(
    name
    for names in (
        ("id", "label", "labels", "class", "category", "kategorie", "kind", "type", "intent", "topic", "tag", "tags"),
        ("text", "texts", "sentence", "utterance", "body", "message", "content", "review", "comment", "description"),
        ("title", "subject", "source", "target", "src", "tgt", "input", "output", "de", "en", "fr", "es", "it"),
    )
    for name in names
)
_LOOKED_AT, _REGULAR = 20_000, 0.8
"""Bytes by which a format is guessed, and the fraction of lines with as many delimiters as the first."""
_HEADER_WORDS, _HEADER_CHARACTERS = 3, 30
"""Words and characters that a cell of a header has at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspected:
    """A user's file."""

    path: Path
    format: str
    """Such as `CSV with semicolons`."""
    encoding: str
    header: bool | None
    """Whether there is a header; None for formats that have none, or always have names."""
    texts: Mapping[str, Sequence[str]]
    """The texts of each column; plain text has the one column `text`."""
    blank: int = 0
    """Blank lines, which are left out."""

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.texts.values())))

    def lines(self) -> list[str]:
        """Return the findings as sentences."""
        about = f"{self.path}: {self.format}"
        if self.encoding != "utf-8":
            about += f", in the encoding {self.encoding}"
        if self.header is not None:
            about += ", with a header" if self.header else ", without a header"
        if self.format == IMAGE_FOLDER:
            return [f"{about}, {self.count:,} images"]
        about += f", {self.count:,} rows"
        if len(self.texts) > 1 or "text" not in self.texts:
            about += f", columns {', '.join(self.texts)}"
        blank = [f"{self.path}: {self.blank:,} empty lines are left out"] if self.blank else []
        return [about, *self._doubts(), *blank]

    def _doubts(self) -> Iterator[str]:
        """Yield the advice to check an encoding that is a guess, with words that show whether it is right."""
        if is_guess(self.encoding):
            words = spelled_by_guess(itertools.chain.from_iterable(self.texts.values()))
            shown = f" words such as {', '.join(words)}" if words else " letters outside of ASCII"
            guess = f"the encoding {self.encoding} is a guess: check{shown}"
            yield f"{self.path}: {guess}; data.files.encoding is for another"


def likely_suffix(content: bytes) -> str:
    """Return the ending that a file of this content should have, such as `.csv`; `.txt` for plain text."""
    starts = {b"PAR1": ".parquet", b"{": ".jsonl", b"<": ".tmx" if b"<tmx" in content[:4096] else ".xliff"}
    for start, suffix in starts.items():
        if content.removeprefix(codecs.BOM_UTF8).lstrip().startswith(start):
            return suffix
    lines = [line for line in content[:_LOOKED_AT].splitlines()[:-1] if line.strip()]
    for delimiter, suffix in ((b"\t", ".tsv"), (b";", ".csv"), (b",", ".csv")):
        counts = [line.count(delimiter) for line in lines]
        if counts and counts[0] and counts.count(counts[0]) > _REGULAR * len(counts):
            return suffix
    return ".txt"


def inspect_file(path: Path) -> Inspected:
    """Return format, columns and texts of a file or folder.

    Raises `FileNotFoundError` where there is none, and `ValueError` for JSON that is not an object a line, and for
    files that cannot be read.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder")
    suffix = format_suffix(path)
    if path.is_dir() and holds_images(path):
        images = images_in_folders(path)
        columns = {"label": [each.label for each in images], "path": [str(each.path) for each in images]}
        return Inspected(path=path, format=IMAGE_FOLDER, encoding="utf-8", header=None, texts=columns)
    if path.is_dir() or suffix in _FORMATS:
        table = open_table(path, SplitFiles(train=str(path)))
        assert table is not None
        kind = _FORMATS.get(suffix, "a folder of texts" if table.noun == "text" else "a directory of datasets")
        return Inspected(path=path, format=kind, encoding="utf-8", header=None, texts=_columns(table))
    encoding = likely_encoding(read_content(path, "utf-8", binary=True))
    lines = read_rows(path, str, encoding)
    blank = sum(not line.strip() for line in lines)
    if lines[0].lstrip().startswith(("{", "[{")) or suffix == ".json":
        raise ValueError(f"{path} looks like JSON: a file with an object on each line, named .jsonl, is read")
    text = "\n".join(lines)
    if is_csv(path):
        delimiter = likely_delimiter(path, text)
        return _delimited(path, f"CSV with {_DELIMITER_NAMES[delimiter]}", delimiter, text, encoding)
    widths = [line.count("\t") for line in lines if line.strip()]
    if suffix == ".tsv" or (max(widths) and widths.count(widths[0]) > 0.9 * len(widths)):
        return _delimited(path, "tab-separated columns", "\t", text, encoding, blank)
    texts = [line.strip() for line in lines if line.strip()]
    return Inspected(path=path, format="plain text", encoding=encoding, header=None, texts={"text": texts}, blank=blank)


def _delimited(path: Path, name: str, delimiter: str, text: str, encoding: str, blank: int = 0) -> Inspected:
    """Return the content of a file with columns; blank lines of CSV, which quoted fields may have, are not counted."""
    if not is_csv(path):
        rows = [line.split("\t") for line in text.split("\n") if line.strip()]
        header = _is_header(rows)
        width = len(rows[0])
        names = [field.strip() for field in rows[0]] if header else [str(place) for place in range(1, width + 1)]
        texts = {
            column: [row[place].strip() if place < len(row) else "" for row in rows[header:]]
            for place, column in enumerate(names)
        }
        return Inspected(path=path, format=name, encoding=encoding, header=header, texts=texts, blank=blank)
    without = _columns(rows_without_header(path, text, ())) if _even(path, text) else {}
    header = not without or _is_header(list(zip(*without.values(), strict=True)))
    texts = dict(_columns(named_rows(path, text, delimiter))) if header else dict(without)
    return Inspected(path=path, format=name, encoding=encoding, header=header, texts=texts, blank=blank)


def _even(path: Path, text: str) -> bool:
    """Return whether all records have the same number of fields."""
    try:
        rows_without_header(path, text, ())
    except ValueError:
        return False
    return True


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has names: usual ones, or short ones of which none is in its column again."""
    cells = [cell.strip() for cell in rows[0]]
    if len(set(cells)) < len(cells) or not all(cells):
        return False
    if any(cell.casefold() in _HEADER_NAMES for cell in cells):
        return True
    if any(len(cell.split()) > _HEADER_WORDS or len(cell) > _HEADER_CHARACTERS for cell in cells):
        return False
    later = [{row[place].strip() for row in rows[1:] if place < len(row)} for place in range(len(cells))]
    repeating = any(len(values) < 0.5 * (len(rows) - 1) for values in later)  # one column is of classes
    return repeating and not any(cell in values for cell, values in zip(cells, later, strict=True))


def _columns(table: Table) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {name: [] for name in table.columns}
    for _, row in table.rows:
        for name, values in texts.items():
            values.append(re.sub(r"\s*[\r\n]+\s*", " ", row.get(name, "")).strip())
    if not texts or not next(iter(texts.values())):
        raise ValueError(f"{table.path} has no {table.noun}s")
    return texts
