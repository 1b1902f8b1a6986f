"""A user's own sentence pairs: files of `source<TAB>target` lines."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from training.data.settings import PairFiles, Split

__all__ = ["TextPair", "held_out_notes", "read_pairs", "read_split"]

TextPair = tuple[str, str]
"""Source and target."""

_SHARE, _MOST = 20, 2000
"""One of so many different sources is held out for a split, but at most so many."""
_FEWEST = 10
"""Different sources that a file must have for some to be held out."""
_SHOWN = 5
"""Wrong lines that an error shows."""


def read_split(files: PairFiles, split: str, data_dir: Path) -> list[TextPair]:
    """The pairs of a split; relative paths start at `data_dir`.

    A split without a file is held out of the training file: of its different sources, ordered by their SHA-256, the
    first twentieth (at most 2,000) is `dev`, the next is `test`. It is the same in whatever order the lines stand, and
    all translations of a source are in one split.

    Raises `ValueError` for an unknown split, for lines that are no pairs, and for too few sources to hold some out;
    `FileNotFoundError` where there is no file.
    """
    if split not in PairFiles.model_fields:
        raise ValueError(f"files: there is no split {split!r}; there are {', '.join(PairFiles.model_fields)}")
    own: str | None = getattr(files, split)
    pairs = read_pairs(data_dir / (files.train if own is None else own))
    if own is not None and split != "train":
        return pairs
    missing = files.held_out()
    if not missing:
        return pairs
    places = _held_out({source for source, _ in pairs}, missing)
    return [pair for pair in pairs if places.get(pair[0], "train") == split]


def _held_out(sources: set[str], splits: list[Split]) -> dict[str, Split]:
    """The split of each source that is not for training."""
    if len(sources) < _FEWEST:
        raise ValueError(
            f"files.train: {len(sources)} different sources are too few to hold out {' and '.join(splits)}; "
            f"{_FEWEST} are needed, or a file for each"
        )
    count = max(1, min(_MOST, len(sources) // _SHARE))
    ordered = sorted(sources, key=lambda source: hashlib.sha256(source.encode()).digest())
    return {
        source: split for index, split in enumerate(splits) for source in ordered[index * count : (index + 1) * count]
    }


def held_out_notes(files: PairFiles) -> list[str]:
    """What a user should know of splits that have no file."""
    share = f"1/{_SHARE} of the sources in {files.train}, at most {_MOST}"
    return [f"no {split} file: {share}, are held out for it, always the same" for split in files.held_out()]


def read_pairs(path: Path) -> list[TextPair]:
    """Raises `ValueError` naming lines that are no pairs, `FileNotFoundError` where there is no file."""
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
            source, target = _columns(line)
            pairs.append((source, target))
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more lines" if len(wrong) > _SHOWN else ""
        raise ValueError(f"{path}, {'; '.join(wrong[:_SHOWN])}{more}")
    return pairs


def _columns(line: bytes) -> Iterator[str]:
    """Raises `ValueError` for what is no pair."""
    try:
        columns = [column.strip() for column in line.decode("utf-8").split("\t")]
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from error
    if columns == [""]:
        raise ValueError("it is empty")
    if len(columns) != 2:
        raise ValueError(f"{len(columns)} column{'s' * (len(columns) > 1)}, not source<TAB>target")
    for name, column in zip(("source", "target"), columns, strict=True):
        if not column:
            raise ValueError(f"the {name} is empty")
    return iter(columns)
