"""A user's own files of two columns: sentence pairs (`source<TAB>target`) or labelled texts (`label<TAB>text`).

`training.data.records` reads them in any format; two parallel files are pairs too.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args

from training.data.records import read_records
from training.data.settings import HELD_OUT_MOST, HELD_OUT_SHARE, ParallelFiles, Split, SplitFiles
from training.data.text_files import read_rows

__all__ = [
    "LABELLED",
    "PAIRS",
    "Columns",
    "TextPair",
    "checked_columns",
    "held_out_count",
    "pairs_of_split",
    "read_pairs",
    "read_parallel",
    "read_split",
    "records_of_split",
    "source_of",
]

TextPair = tuple[str, str]
"""The two columns of a line."""

RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of two columns, and the index of the key column, whose values never occur in two splits."""

    names: tuple[str, str]
    key: int
    has_classes: bool = False
    """Whether the other column has classes, separated by commas where a record has several."""

    @property
    def keys(self) -> str:
        """Return the plural noun for values of the key column."""
        return f"{self.names[self.key]}s"


PAIRS = Columns(("source", "target"), 0)
LABELLED = Columns(("label", "text"), 1, has_classes=True)

_FEWEST = 10
"""Number of distinct keys that a file must have for some to be held out."""


def read_split(files: SplitFiles, split: str, data_dir: Path, columns: Columns = PAIRS) -> list[TextPair]:
    """Return the lines of a split; relative paths start at `data_dir`.

    A split without a file is held out of the training file, see `records_of_split`.

    Raises `ValueError` for an unknown split, for lines that are not two columns, and for too few keys to hold some out;
    `FileNotFoundError` where there is no file.
    """
    given, missing = _given(files, split)
    if isinstance(given, ParallelFiles) and columns == PAIRS:
        pairs = read_parallel(data_dir / given.source, data_dir / given.target, files.encoding)
    else:
        pairs = read_pairs(source_of(files, split, data_dir)[0], columns, files)
    return pairs_of_split(pairs, split, missing, columns)


def pairs_of_split(pairs: Sequence[TextPair], split: str, missing: Sequence[Split], columns: Columns) -> list[TextPair]:
    """Return the records of one split, see `records_of_split`; of each class, at least one stays in training."""
    keys = [pair[columns.key] for pair in pairs]
    classes = [pair[1 - columns.key].split(",") for pair in pairs] if columns.has_classes else None
    return records_of_split(pairs, keys, split, missing, columns.keys, classes)


def source_of(files: SplitFiles, split: str, data_dir: Path) -> tuple[Path, list[Split]]:
    """Return the path that holds a split, and the splits without a file, which are held out of it.

    Raises `ValueError` for an unknown split, and for two parallel files, which only pairs have.
    """
    given, missing = _given(files, split)
    if isinstance(given, ParallelFiles):
        raise ValueError(f"data.files: {given} are two parallel files; only pairs of source and target are read so")
    return data_dir / given, missing


def _given(files: SplitFiles, split: str) -> tuple[str | ParallelFiles, list[Split]]:
    """Return what holds a split, and the splits without a file, which are held out of it."""
    if split not in get_args(Split):
        raise ValueError(f"files: there is no split {split!r}; there are {', '.join(get_args(Split))}")
    own: str | ParallelFiles | None = getattr(files, split)
    if own is not None and split != "train":
        return own, []
    return files.train, files.held_out()


def records_of_split(
    records: Sequence[RecordT],
    keys: Sequence[str],
    split: str,
    missing: Sequence[Split],
    unit: str,
    classes: Sequence[Sequence[str]] | None = None,
) -> list[RecordT]:
    """Return the records of one split, where the splits `missing` are held out of these records.

    The split of a record depends on the keys alone, not on their order, and equal keys are in one split. `unit` is the
    plural noun for keys. With the `classes` of each record, the last key of a class stays in training. Raises
    `ValueError` for too few distinct keys.
    """
    if not missing:
        return list(records)
    of_keys: Mapping[str, Collection[str]] = dict.fromkeys(keys, ())
    if classes is not None:
        sets: dict[str, set[str]] = {key: set() for key in of_keys}
        for key, own in zip(keys, classes, strict=True):
            sets[key].update(own)
        of_keys = sets
    places = _held_out(of_keys, missing, unit)
    return [record for record, key in zip(records, keys, strict=True) if places.get(key, "train") == split]


def held_out_count(count: int, missing: Sequence[Split], unit: str) -> int:
    """Return how many of `count` distinct records are held out for each missing split: a twentieth, at most 2,000.

    Raises `ValueError` for too few.
    """
    if count < _FEWEST:
        raise ValueError(
            f"files.train: {count} different {unit} are too few to hold out {' and '.join(missing)}; "
            f"{_FEWEST} are needed, or a file for each"
        )
    return max(1, min(HELD_OUT_MOST, count // HELD_OUT_SHARE))


def _held_out(classes: Mapping[str, Collection[str]], missing: Sequence[Split], unit: str) -> Mapping[str, Split]:
    """Return the split of each held-out key: the first keys by SHA-256 for the first split, and so on.

    `classes` has those of each key, of which the last one is left out. Raises `ValueError` where all are.
    """
    count = held_out_count(len(classes), missing, unit)
    left = Counter(label for own in classes.values() for label in own)
    chosen: list[str] = []
    for key in sorted(classes, key=lambda key: hashlib.sha256(key.encode()).digest()):
        if len(chosen) == count * len(missing):
            break
        if all(left[label] > 1 for label in classes[key]):
            left.subtract(classes[key])
            chosen.append(key)
    if len(chosen) < len(missing):
        raise ValueError(f"files.train: classes of one of the {unit} each leave none to hold out; give a file for each")
    size = min(count, len(chosen) // len(missing))
    return {key: split for index, split in enumerate(missing) for key in chosen[index * size : (index + 1) * size]}


def read_pairs(path: Path, columns: Columns = PAIRS, files: SplitFiles | None = None) -> list[TextPair]:
    """Return the two columns of each line; `files` has the encoding, and the names of a CSV file's columns.

    Raises `ValueError` naming lines that are not two columns, `FileNotFoundError` where there is no file.
    """
    return read_records(path, columns.names, lambda values: checked_columns(values, columns.names), files)


def read_parallel(source: Path, target: Path, encoding: str = "utf-8") -> list[TextPair]:
    """Return the pairs of two files' lines of the same number; those with an empty side are left out.

    Raises `ValueError` for other numbers of lines and where no pair is left, and the errors of `read_rows`.
    """
    sources, targets = (read_rows(path, str.strip, encoding) for path in (source, target))
    if len(sources) != len(targets):
        raise ValueError(
            f"{source} has {len(sources)} lines and {target} {len(targets)}: lines of the same number must be a pair"
        )
    pairs = [pair for pair in zip(sources, targets, strict=True) if all(pair)]
    if not pairs:
        raise ValueError(f"{source} and {target} have no pair of lines that are not empty")
    return pairs


def checked_columns(values: Sequence[str], names: tuple[str, str]) -> TextPair:
    """Return the two columns of a line; raises `ValueError` for other numbers of columns and for empty ones."""
    columns = [value.strip() for value in values]
    if columns == [""]:
        raise ValueError("it is empty")
    if len(columns) != 2:
        raise ValueError(f"{len(columns)} column{'s' * (len(columns) > 1)}, not {'<TAB>'.join(names)}")
    for name, column in zip(names, columns, strict=True):
        if not column:
            raise ValueError(f"the {name} is empty")
    return columns[0], columns[1]
