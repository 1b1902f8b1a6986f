"""The corpus registry: what each corpus is, where it comes from, under which licence, and how it is read."""

import gzip
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CORPORA", "Corpus", "CorpusFile", "get_corpus"]

Record = tuple[str, ...]
"""One value per column of the corpus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusFile:
    """One split of a corpus, kept as `<data-dir>/<corpus folder>/<name>` or the same with `.gz` behind it."""

    name: str
    """File name without `.gz`."""
    sha256: str
    """Of the uncompressed content."""


def read_tsv(lines: Iterator[str]) -> Iterator[Record]:
    return (tuple(line.split("\t")) for line in lines)


def read_lines(lines: Iterator[str]) -> Iterator[Record]:
    return ((line.strip(),) for line in lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """A named corpus with its splits, its origin and its licence."""

    name: str
    folder: str
    """Folder under the data directory."""
    description: str
    homepage: str
    licence: str
    release_allowed: bool
    """Whether a model trained on it may be released."""
    columns: tuple[str, ...]
    splits: Mapping[str, CorpusFile]
    """Keys are `train`, `dev` and `test`."""
    reader: Callable[[Iterator[str]], Iterator[Record]] = field(default=read_lines)

    def records(self, split: str, data_dir: Path) -> Iterator[Record]:
        """The records of a split.

        Raises `ValueError` for an unknown split or a file that is not the registered one,
        `FileNotFoundError` where there is none, saying where to get it.
        """
        if split not in self.splits:
            raise ValueError(f"corpus {self.name!r} has no split {split!r}; it has {', '.join(self.splits)}")
        content = self._content(self.splits[split], data_dir / self.folder)
        lines = content.decode("utf-8").removesuffix("\n").split("\n")
        for number, record in enumerate(self.reader(iter(lines)), 1):
            if len(record) != len(self.columns):
                raise ValueError(f"{self.name}, {split}, line {number}: {len(record)} columns, not {len(self.columns)}")
            yield record

    def texts(self, split: str, data_dir: Path, column: str) -> Iterator[str]:
        """One column of a split's records."""
        if column not in self.columns:
            raise ValueError(f"corpus {self.name!r} has no column {column!r}; it has {', '.join(self.columns)}")
        index = self.columns.index(column)
        return (record[index] for record in self.records(split, data_dir))

    def _content(self, file: CorpusFile, folder: Path) -> bytes:
        plain, packed = folder / file.name, folder / f"{file.name}.gz"
        if plain.is_file():
            content = plain.read_bytes()
        elif packed.is_file():
            content = gzip.decompress(packed.read_bytes())
        else:
            raise FileNotFoundError(f"{plain} (or .gz) is missing; corpus {self.name!r} comes from {self.homepage}")
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise ValueError(f"{file.name} in {folder} is not the registered file of corpus {self.name!r} (checksum)")
        return content


def _files(pattern: str, splits: Mapping[str, tuple[str, str]]) -> dict[str, CorpusFile]:
    return {
        split: CorpusFile(name=pattern.format(name), sha256=sha256) for split, (name, sha256) in splits.items()
    }


CORPORA: Mapping[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="tatoeba-de-en",
            folder="tatoeba_deu_eng",
            description="German-English sentence pairs; splits keep connected groups of sentences together",
            homepage="https://www.manythings.org/anki/",
            licence="CC BY 2.0 FR",
            release_allowed=True,
            columns=("de", "en"),
            splits=_files(
                "{}.de-en.tsv",
                {
                    "train": ("train", "5ab74061abd5d60573d62fe17b2985e722dc1a00b634f28b017c93e713d0b345"),
                    "dev": ("valid", "297eb0e54a3d21c26445c1e218cae926384de43e857f8ebe94e6dd8462f17678"),
                    "test": ("test", "05975920740a41dfebd347c4a0991bc6a5e71f766b7325ecfc00cbb51fec47e8"),
                },
            ),
            reader=read_tsv,
        ),
        Corpus(
            name="wikitext-2",
            folder="wikitext2",
            description="WikiText-2, word level, tokenized, with <unk>",
            homepage="https://blog.salesforceairesearch.com/the-wikitext-long-term-dependency-language-modeling-dataset/",
            licence="CC BY-SA 3.0",
            release_allowed=True,
            columns=("text",),
            splits=_files(
                "wiki.{}.tokens",
                {
                    "train": ("train", "728c77e87e176af4730f9a80fc6008bcaff421a7202c1c048877c0eec3685f89"),
                    "dev": ("valid", "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
                    "test": ("test", "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
                },
            ),
        ),
        Corpus(
            name="ptb",
            folder="ptb",
            description="Penn Treebank, Mikolov's version: lower case, 10,000 words, N for numbers",
            homepage="https://catalog.ldc.upenn.edu/LDC99T42",
            licence="LDC, research only",
            release_allowed=False,
            columns=("text",),
            splits=_files(
                "ptb.{}.txt",
                {
                    "train": ("train", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
                    "dev": ("valid", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
                    "test": ("test", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
                },
            ),
        ),
        Corpus(
            name="swda",
            folder="swda",
            description="Switchboard dialogue acts: telephone conversations, one utterance a line",
            homepage="https://github.com/NathanDuran/Switchboard-Corpus",
            licence="LDC-derived, research only",
            release_allowed=False,
            columns=("dialogue", "speaker", "text", "act"),
            splits=_files(
                "{}.tsv",
                {
                    "train": ("train", "8a50886087fa01fd7885cdc509ef2f16ba8d67b2d4ff6bd7b568a6f72cb6a690"),
                    "dev": ("val", "dc13f201df3b03dd973b31e2198174f5c2be8fcecd84c2945df8bf1a26f40ad8"),
                    "test": ("test", "1a7e7cfe166c96b08b68d469616c0e076285b52ab476b2bec9ac81d64490054f"),
                },
            ),
            reader=read_tsv,
        ),
    )
}


def get_corpus(name: str) -> Corpus:
    """The corpus of that name; `ValueError` names the known ones."""
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; known corpora: {', '.join(CORPORA)}")
    return CORPORA[name]
