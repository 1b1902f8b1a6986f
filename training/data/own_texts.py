"""A user's own text files for language models: a sentence or a document a line, one running text, or a CSV column."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from training.data.own_files import held_out_count, records_of_split, source_of
from training.data.records import read_records
from training.data.settings import SplitFiles
from training.data.text_files import can_be_iterated, iterate_rows

__all__ = ["iterate_lines", "read_lines"]


def read_lines(
    files: SplitFiles, split: str, data_dir: Path, context: Literal["sentence", "stream"] = "sentence"
) -> list[str]:
    """Return the lines of a split that are not blank; relative paths start at `data_dir`.

    A split without a file is held out of the training file. With `context` `sentence` the split of a line depends on
    the line alone (see `training.data.own_files.records_of_split`). A running text, `stream`, is not torn apart: its
    last lines are held out, those of the test split after those of the development split.

    Raises `ValueError` for an unknown split, for lines that are not UTF-8, for a file of blank lines, and for too few
    lines to hold some out; `FileNotFoundError` where there is no file.
    """
    path, missing = source_of(files, split, data_dir)
    lines = [line for line in read_records(path, ("text",), lambda values: "\t".join(values).strip(), files) if line]
    if not lines:
        raise ValueError(f"{path} has no text")
    if context == "sentence" or not missing:
        return records_of_split(lines, lines, split, missing, "lines")
    count = held_out_count(len(lines), missing, "lines")
    first = len(lines) - count * len(missing)  # of the lines that are held out
    if split == "train":
        return lines[:first]
    start = first + count * [str(each) for each in missing].index(split)
    return lines[start : start + count]


def iterate_lines(
    files: SplitFiles, split: str, data_dir: Path, context: Literal["sentence", "stream"] = "sentence"
) -> Iterable[str]:
    """Return the lines of `read_lines`, one by one where the split has a file of its own in UTF-8 that is not CSV.

    Raises the errors of `read_lines`, some of them while the lines are read.
    """
    path, missing = source_of(files, split, data_dir)
    if missing or not can_be_iterated(path, files.encoding):
        return read_lines(files, split, data_dir, context)
    return _lines(path)


def _lines(path: Path) -> Iterator[str]:
    line = None
    for line in filter(None, iterate_rows(path, str.strip)):
        yield line
    if line is None:
        raise ValueError(f"{path} has no text")
