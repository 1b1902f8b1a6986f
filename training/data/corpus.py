"""Corpora: their files and checksums, readers of their formats, and public addresses."""

import gzip
import hashlib
import http.client
import io
import json
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass

from training.data.conversions import CONVERSIONS, Conversion
from training.settings import ENTRY

__all__ = [
    "Corpus",
    "CorpusEntry",
    "CorpusFile",
    "ListedSource",
    "Source",
    "fetch",
    "matches",
    "read_jsonl",
    "read_lines",
    "read_tsv",
    "unpacked",
]

_PACKAGED = Path(__file__).parent / "packaged"

Record = tuple[str, ...]
"""One value per column of the corpus."""


@dataclass(frozen=True, kw_only=True, slots=True, config=ENTRY)
class CorpusFile:
    """One split of a corpus, or a column of it, kept as `<data-dir>/<corpus folder>/<name>` or with `.gz` behind it."""

    name: str
    """File name without `.gz`."""
    checksums: tuple[str, ...]
    """`algorithm:hex` of the uncompressed content; several where versions in circulation differ harmlessly, none where
    they are not known: the checksums of a corpus's sources alone are checked then."""

    def matches(self, content: bytes) -> bool:
        """Return whether an uncompressed content is this file's, or may be where no checksum is known."""
        return not self.checksums or any(matches(content, checksum) for checksum in self.checksums)


@dataclass(frozen=True, kw_only=True, slots=True, config=ENTRY)
class Source:
    """A public address, and the checksum of the file there."""

    url: str
    checksum: str | None = None
    """`algorithm:hex` of the file at the address; where it is not known, just the corpus's files are checked."""
    members: Mapping[str, str] | None = None
    """For a zip archive: corpus file name to member path. Without it the address serves the file of its last part."""


class ListedSource(NamedTuple):
    """One of the sources that a corpus was made of."""

    name: str
    homepage: str
    """Address of the repository, and its commit or version."""
    licence: str


def read_tsv(lines: Iterator[str]) -> Iterator[Record]:
    return (tuple(line.split("\t")) for line in lines)


def read_lines(lines: Iterator[str]) -> Iterator[Record]:
    return ((line.strip(),) for line in lines)


def read_jsonl(source: str, target: str) -> Callable[[Iterator[str]], Iterator[Record]]:
    """Return a reader of JSON lines with a field `source`, a text or its sentences, and a field `target` of one or more
    texts."""

    def read(lines: Iterator[str]) -> Iterator[Record]:
        for line in lines:
            entry = json.loads(line)
            text, found = entry[source], entry[target]
            text = text if isinstance(text, str) else " ".join(text)
            for each in [found] if isinstance(found, str) else found:
                yield text, each

    return read


Reader = Callable[[Iterator[str]], Iterator[Record]]


def _named_reader(given: object) -> object:
    """Return the reader that `corpora.yaml` names: `tsv`, or the fields of JSON lines."""
    if isinstance(given, dict):
        return read_jsonl(**given)
    return read_tsv if given == "tsv" else given


def _named_conversion(given: object) -> object:
    """Return the conversion that `corpora.yaml` names."""
    return CONVERSIONS[given] if isinstance(given, str) else given


@dataclass(frozen=True, kw_only=True, slots=True, config=ENTRY)
class CorpusEntry:
    """The origin and the licence of a named corpus, and where its files are kept."""

    name: str
    folder: str
    """Folder under the data directory."""
    description: str
    homepage: str
    licence: str
    release_allowed: bool
    """Whether a model trained on it may be released."""
    columns: tuple[str, ...]
    changing: bool = False
    """Whether its addresses serve another version from time to time: its files have no checksums."""
    packaged: bool = False
    """Whether the files are part of this package, not of the data directory."""
    slots: bool = False
    """Whether its texts have slots such as `{time}`, to be filled with values (see `training.data.entities`)."""
    sources: tuple[Source, ...] = ()
    """The addresses to download from; empty if the files cannot be made from those at public addresses."""
    source_list: str | None = None
    """Packaged file of the many sources that a corpus was made of, whose licences ask to name them: tab-separated
    columns `name`, `homepage` and `licence` with a header."""
    conversion: Annotated[Conversion | None, BeforeValidator(_named_conversion)] = None
    """How the corpus's files are made from those at the addresses; they are these without it."""

    def all_files(self) -> Iterator[CorpusFile]:
        """Yield the corpus's files."""
        raise NotImplementedError

    def listed_sources(self) -> list["ListedSource"]:
        """Return the sources that the corpus was made of, where it lists them."""
        if self.source_list is None:
            return []
        rows = (_PACKAGED / self.source_list).read_text(encoding="utf-8").splitlines()
        return [ListedSource(*row.split("\t")) for row in rows[1:]]

    def check(self, files: Mapping[str, bytes]) -> None:
        """Raise `ValueError` if a file, by name, is missing or not the registered one."""
        for file in self.all_files():
            if file.name not in files:
                raise ValueError(f"{file.name} of corpus {self.name!r} is missing")
            if not file.matches(files[file.name]):
                raise ValueError(f"{file.name} is not the registered file of corpus {self.name!r} (checksum)")

    def content(self, file: CorpusFile, data_dir: Path) -> bytes:
        """Return the uncompressed content of a file.

        Raises `ValueError` for a file that is not the registered one, `FileNotFoundError` where there is none, saying
        where to get it.
        """
        plain = (_PACKAGED if self.packaged else data_dir / self.folder) / file.name
        packed = plain.with_name(f"{file.name}.gz")
        if plain.is_file():
            content = plain.read_bytes()
        elif packed.is_file():
            content = gzip.decompress(packed.read_bytes())
        else:
            raise FileNotFoundError(f"{plain} (or .gz) is missing; corpus {self.name!r} comes from {self.homepage}")
        if not file.matches(content):
            raise ValueError(f"{plain} is not the registered file of corpus {self.name!r} (checksum)")
        return content

    def lines(self, file: CorpusFile, data_dir: Path) -> list[str]:
        """Return the lines of a file; raises the errors of `content`."""
        return self.content(file, data_dir).decode("utf-8").removesuffix("\n").split("\n")


@dataclass(frozen=True, kw_only=True, slots=True, config=ENTRY)
class Corpus(CorpusEntry):
    """A corpus of texts with its splits."""

    splits: Mapping[str, CorpusFile | tuple[CorpusFile, ...]]
    """Keys are `train`, `dev` and `test`; of texts of no class `oos_train`, `oos_dev` and `oos_test`.

    Several files stand side by side, a column each, whose lines are whole.
    """
    reader: Annotated[Reader, BeforeValidator(_named_reader)] = read_lines

    def records(self, split: str, data_dir: Path) -> Iterator[Record]:
        """Return the records of a split.

        Raises `ValueError` for an unknown split or a file that is not the registered one,
        `FileNotFoundError` where there is none, saying where to get it.
        """
        if split not in self.splits:
            raise ValueError(f"corpus {self.name!r} has no split {split!r}; it has {', '.join(self.splits)}")
        columns = [self.lines(file, data_dir) for file in self.files(split)]
        if len({len(lines) for lines in columns}) > 1:
            raise ValueError(f"{self.name}, {split}: its files have {', '.join(str(len(c)) for c in columns)} lines")
        records = self.reader(iter(columns[0])) if len(columns) == 1 else zip(*columns, strict=True)
        for number, record in enumerate(records, 1):
            if len(record) != len(self.columns):
                raise ValueError(f"{self.name}, {split}, line {number}: {len(record)} columns, not {len(self.columns)}")
            yield record

    def texts(self, split: str, data_dir: Path, column: str) -> Iterator[str]:
        """Return one column of a split's records."""
        if column not in self.columns:
            raise ValueError(f"corpus {self.name!r} has no column {column!r}; it has {', '.join(self.columns)}")
        index = self.columns.index(column)
        return (record[index] for record in self.records(split, data_dir))

    def files(self, split: str) -> tuple[CorpusFile, ...]:
        """Return the files of a split."""
        found = self.splits[split]
        return found if isinstance(found, tuple) else (found,)

    def all_files(self) -> Iterator[CorpusFile]:
        return (file for split in self.splits for file in self.files(split))


def matches(content: bytes, checksum: str) -> bool:
    """Return whether the content has a checksum that is written as `algorithm:hex`."""
    algorithm, _, expected = checksum.partition(":")
    return hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() == expected


def fetch(source: Source) -> bytes:
    """Download the file of a source; raises `ValueError` for another checksum, `OSError` where the network fails."""
    # Some hosts refuse Python's own User-Agent.
    request = urllib.request.Request(source.url, headers={"User-Agent": "Mozilla/5.0 (softserve-train)"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            content: bytes = response.read()
    except http.client.HTTPException as error:
        raise OSError(f"{source.url} sent an incomplete answer: {type(error).__name__}: {error}") from error
    if source.checksum is not None and not matches(content, source.checksum):
        raise ValueError(f"{source.url} serves something else than the registered file (checksum)")
    return content


def unpacked(source: Source, content: bytes) -> dict[str, bytes]:
    """Return the files of a downloaded source by name."""
    if source.members is None:
        return {source.url.rpartition("/")[2]: content}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(member) for name, member in source.members.items()}
