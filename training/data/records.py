"""The records of a user's file: the columns that a task wants, from any format.

The format is that of the file's name, `.gz` left aside: CSV, JSON Lines, Parquet, TMX, XLIFF, a folder of texts or a
directory of `datasets`, else tab-separated columns, with a header or without.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from training.data.arrow_files import dataset_table, is_dataset, parquet_table
from training.data.csv_files import is_csv, read_csv, rows_without_header
from training.data.json_lines import json_table
from training.data.settings import SplitFiles
from training.data.tables import Row, Table
from training.data.text_files import format_suffix, parsed, read_content, read_rows
from training.data.text_folders import folder_table
from training.data.translation_memories import tmx_table, xliff_table

__all__ = ["open_table", "read_records"]

RecordT = TypeVar("RecordT")


def read_records(
    path: Path, names: Sequence[str], parse: Callable[[Sequence[str]], RecordT], files: SplitFiles | None = None
) -> list[RecordT]:
    """Return the parsed columns `names` of each row of a file.

    `files` has the encoding, the file's names of the columns where they are others, and whether there is a header. A
    tab-separated file without a header has exactly these columns, in this order.

    Rows in which all of several columns are empty are left out, as blank lines are, with a warning.

    Raises `ValueError` naming the lines for which `parse` raises it and for a missing column, `FileNotFoundError` where
    there is no file.
    """
    files = files or SplitFiles(train=str(path))
    if is_csv(path) and files.header is not False:
        text = "\n".join(read_rows(path, str, files.encoding))
        found = parsed(path, _with_content(path, read_csv(path, text, names, files.columns), names), parse)
        if not found:
            raise ValueError(f"{path} has a header only")
        return found
    table = open_table(path, files, names)
    if table is None:
        return read_rows(path, lambda line: parse(line.split("\t")), files.encoding)
    found = parsed(path, _with_content(path, table.selected(names, files.columns), names), parse, table.noun)
    if not found:
        raise ValueError(f"{path} has no {table.noun}s")
    return found


def _with_content(
    path: Path, rows: Iterable[tuple[int, tuple[str, ...]]], names: Sequence[str]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the rows that have something in one of their columns, if there are several, and warn of the others."""
    left_out: list[int] = []
    for number, values in rows:
        if len(values) == 1 or any(value.strip() for value in values):
            yield number, values
        else:
            left_out.append(number)
    if left_out:
        warnings.warn(
            f"{path}: rows without {' and '.join(names)} are left out: {len(left_out)}, the first is {left_out[0]}",
            stacklevel=2,
        )


def open_table(path: Path, files: SplitFiles, names: Sequence[str] = ()) -> Table | None:
    """Return the table of a file with named columns; None for plain text, and tab-separated columns without names.

    `names` are the columns that are wanted: a tab-separated file whose first line has them has a header.
    """
    suffix = format_suffix(path)
    if path.is_dir():
        return dataset_table(path) if is_dataset(path) else folder_table(path, files.encoding)
    if suffix in (".jsonl", ".ndjson"):
        return json_table(path, read_rows(path, str, files.encoding))
    if suffix == ".parquet":
        read_content(path, files.encoding, binary=True)
        return parquet_table(path)
    if suffix == ".tmx":
        return tmx_table(path, read_content(path, files.encoding, binary=True))
    if suffix in (".xlf", ".xliff"):
        return xliff_table(path, read_content(path, files.encoding, binary=True))
    return _delimited(path, files, names)


def _delimited(path: Path, files: SplitFiles, names: Sequence[str]) -> Table | None:
    """Return the table of a tab-separated file with a header, or of numbered columns; None for one without names."""
    if files.header is False and (files.columns or is_csv(path)):
        return rows_without_header(path, "\n".join(read_rows(path, str, files.encoding)), names)
    lines = read_rows(path, str, files.encoding) if files.header is not False else [""]
    columns = [name.strip() for name in lines[0].split("\t")]
    own = {name.casefold() for name in columns}
    named = len(names) > 1 and all(files.columns.get(name, name).casefold() in own for name in names)
    if not (files.header or files.columns or named):
        return None
    rows: list[tuple[int, Row]] = []
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != len(columns):
            raise ValueError(f"{path}, line {number}: {len(fields)} fields, but the header has {len(columns)}")
        rows.append((number, dict(zip(columns, fields, strict=True))))
    return Table(path, tuple(columns), rows)
