"""A user's own files of two columns: sentence pairs (`source<TAB>target`) or labelled texts (`label<TAB>text`)."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data.settings import Split, SplitFiles

__all__ = ["LABELLED", "PAIRS", "Columns", "TextPair", "held_out", "held_out_notes", "read_pairs", "read_split"]

TextPair = tuple[str, str]
"""The two columns of a line."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What the two columns are, and which of them must not be in two splits."""

    names: tuple[str, str]
    key: int

    @property
    def keys(self) -> str:
        """What the column's entries are called."""
        return f"{self.names[self.key]}s"


PAIRS = Columns(("source", "target"), 0)
LABELLED = Columns(("label", "text"), 1)

_SHARE, _MOST = 20, 2000
"""One of so many different keys is held out for a split, but at most so many."""
_FEWEST = 10
"""Different keys that a file must have for some to be held out."""
_SHOWN = 5
"""Wrong lines that an error shows."""


def read_split(files: SplitFiles, split: str, data_dir: Path, columns: Columns = PAIRS) -> list[TextPair]:
    """The lines of a split; relative paths start at `data_dir`.

    A split without a file is held out of the training file, see `held_out`: it is the same in whatever order the lines
    stand, and all lines of one key are in one split.

    Raises `ValueError` for an unknown split, for lines that are not two columns, and for too few keys to hold some out;
    `FileNotFoundError` where there is no file.
    """
    if split not in SplitFiles.model_fields:
        raise ValueError(f"files: there is no split {split!r}; there are {', '.join(SplitFiles.model_fields)}")
    own: str | None = getattr(files, split)
    pairs = read_pairs(data_dir / (files.train if own is None else own), columns)
    if own is not None and split != "train":
        return pairs
    missing = files.held_out()
    if not missing:
        return pairs
    places = held_out({pair[columns.key] for pair in pairs}, missing, columns)
    return [pair for pair in pairs if places.get(pair[columns.key], "train") == split]


def held_out(keys: Collection[str], splits: Sequence[Split], columns: Columns) -> Mapping[str, Split]:
    """The split of each key that is not for training.

    Of the keys ordered by their SHA-256 the first twentieth (at most 2,000) is for the first split, the next for the
    second.
    """
    if len(keys) < _FEWEST:
        raise ValueError(
            f"files.train: {len(keys)} different {columns.keys} are too few to hold out {' and '.join(splits)}; "
            f"{_FEWEST} are needed, or a file for each"
        )
    count = max(1, min(_MOST, len(keys) // _SHARE))
    ordered = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())
    return {key: split for index, split in enumerate(splits) for key in ordered[index * count : (index + 1) * count]}


def held_out_notes(files: SplitFiles, columns: Columns = PAIRS) -> list[str]:
    """What a user should know of splits that have no file."""
    share = f"1/{_SHARE} of the {columns.keys} in {files.train}, at most {_MOST}"
    return [f"no {split} file: {share}, are held out for it, always the same" for split in files.held_out()]


def read_pairs(path: Path, columns: Columns = PAIRS) -> list[TextPair]:
    """Raises `ValueError` naming lines that are not two columns, `FileNotFoundError` where there is no file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; relative paths of data.files start at --data-dir")
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    lines = content.split(b"\n") if content else []
    if not lines:
        raise ValueError(f"{path} is empty")
    pairs: list[TextPair] = []
    wrong: list[str] = []
    for number, line in enumerate(lines, 1):
        try:
            pairs.append(_columns(line, columns.names))
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more lines" if len(wrong) > _SHOWN else ""
        raise ValueError(f"{path}, {'; '.join(wrong[:_SHOWN])}{more}")
    return pairs


def _columns(line: bytes, names: tuple[str, str]) -> TextPair:
    """Raises `ValueError` for what is not two columns."""
    try:
        columns = [column.strip() for column in line.decode("utf-8").split("\t")]
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from error
    if columns == [""]:
        raise ValueError("it is empty")
    if len(columns) != 2:
        raise ValueError(f"{len(columns)} column{'s' * (len(columns) > 1)}, not {'<TAB>'.join(names)}")
    for name, column in zip(names, columns, strict=True):
        if not column:
            raise ValueError(f"the {name} is empty")
    return columns[0], columns[1]
