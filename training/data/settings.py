"""What the sections `data` of all recipes share: a registered corpus, or a user's own files."""

import codecs
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from training.data.corpora import get_corpus
from training.data.corpus import Corpus, CorpusEntry
from training.data.image_corpora import ImageCorpus
from training.settings import PositiveInt, Settings

__all__ = [
    "HELD_OUT_MOST",
    "HELD_OUT_SHARE",
    "CorpusOrFiles",
    "DataSection",
    "ParallelFiles",
    "Split",
    "SplitFiles",
    "corpus_sources",
    "source",
]

Split = Literal["train", "dev", "test"]


FileName = Annotated[str, Field(min_length=1)]
ColumnName = Annotated[str, Field(min_length=1, coerce_numbers_to_str=True)]


class ParallelFiles(Settings):
    """Two text files whose lines of the same number are a pair. Relative paths start at `--data-dir`."""

    source: FileName
    """The file of the source sentences."""
    target: FileName
    """The file of the target sentences."""

    def __str__(self) -> str:
        return f"{self.source} and {self.target}"


def _file_or_pair(given: object) -> object:
    if isinstance(given, str) and given:
        return given
    if isinstance(given, Mapping | ParallelFiles):
        return ParallelFiles.model_validate(given)
    raise ValueError("it must be the name of a file or folder, or two files {source: ..., target: ...}")


FileOrPair = Annotated[str | ParallelFiles, BeforeValidator(_file_or_pair)]
"""The name of a file or folder, or two parallel files."""

OWN_FILES = "user's own files"
"""Homepage and licence of data that are in no registry."""

HELD_OUT_SHARE, HELD_OUT_MOST = 20, 2000
"""One of this many records is held out for a split without a file, but at most this many."""


class SplitFiles(Settings):
    """A user's own files. Relative paths start at `--data-dir`."""

    train: FileOrPair
    """The file or folder to train on, or two parallel files `{source: a.de, target: a.en}` of sentence pairs."""
    dev: FileOrPair | None = None
    """The file or folder to select a model by; held out of `train` if there is none."""
    test: FileOrPair | None = None
    """The file or folder to report quality on; held out of `train` if there is none."""
    columns: dict[str, ColumnName] = Field(default_factory=dict)
    """The file's own names of the columns, such as `{label: intent, text: utterance}`; of nested JSON objects dotted
    paths, in files without a header numbers from 1 on."""
    header: bool | None = None
    """Whether delimited files have a header. Without it, CSV files have one, and tab-separated files if `columns` are
    given or their first line has the names of the columns."""
    encoding: str = "utf-8"
    """Encoding of the text files, such as cp1252; UTF-16 is known by its byte order mark."""

    @model_validator(mode="after")
    def _readable(self) -> Self:
        try:
            codecs.lookup(self.encoding)
        except LookupError as error:
            raise ValueError(f"encoding: {error}") from error
        return self

    def held_out(self) -> list[Split]:
        """Return the splits that are part of the training file."""
        splits: tuple[Split, ...] = ("dev", "test")
        return [split for split in splits if getattr(self, split) is None]


class DataSection(Settings):
    """The section `data` of a recipe."""

    searchable: ClassVar[tuple[str, ...]] = ()
    """Fields that a hyperparameter search may change; others change the data that the metric is measured on."""

    def dataset(self, split: str) -> str:
        """Return the name under which a metric of that split is reported."""
        raise NotImplementedError

    def held_out_notes(self) -> list[str]:
        """Return a line for each split that is held out of the training file."""
        return []

    def sources(self) -> list[dict[str, str]]:
        """Return name, homepage and licence of the data, as `models.bundle.manifest.DataSource` has them."""
        raise NotImplementedError

    def on_corpus(self, name: str) -> Self:
        """Return the section for another corpus of the registry; raises `ValueError` if the task has no other."""
        raise ValueError(f"there is no other corpus to read {name!r} from")


class CorpusOrFiles(DataSection):
    """Data of a registered corpus, or of a user's own files."""

    searchable: ClassVar[tuple[str, ...]] = ("batch_tokens",)
    held_out_unit: ClassVar[str]
    """The plural noun for the distinct records that are divided between splits."""

    corpus: str | None = None
    """A name of the corpus registry (`softserve-train corpora` lists them)."""
    files: SplitFiles | None = None
    """Own files instead of a corpus."""
    limit: PositiveInt | None = None
    """Use only the first records of each split, for trying things out."""
    train_limit: PositiveInt | None = None
    """Learn from so many of the training records only, for learning curves: the first ones, in text classification
    ones taken evenly from the file. Other splits stay whole."""

    strict: bool = False
    """Whether `softserve-train run` refuses data for which `softserve-train check` has warnings."""

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.corpus is None) == (self.files is None):
            raise ValueError("give either corpus, a name of the registry, or files, your own")
        return self

    def limit_of(self, split: str) -> int | None:
        """Return the number of records to which a split is reduced, None if it is whole."""
        limits = [self.limit, self.train_limit if split == "train" else None]
        return min((limit for limit in limits if limit is not None), default=None)

    def dataset(self, split: str) -> str:
        if self.files is None:
            assert self.corpus is not None
            return self.corpus
        own: str | ParallelFiles | None = getattr(self.files, split, None)
        return f"{_base_name(self.files.train)}, held out" if own is None else _base_name(own)

    def held_out_notes(self) -> list[str]:
        if self.files is None:
            return []
        return [f"no {split} file: {self._held_out_part(split)}" for split in self.files.held_out()]

    def _held_out_part(self, split: Split) -> str:
        del split
        assert self.files is not None
        share = f"1/{HELD_OUT_SHARE} of the {self.held_out_unit} in {self.files.train}, at most {HELD_OUT_MOST}"
        return f"{share}, are held out for it, always the same"

    def sources(self) -> list[dict[str, str]]:
        if self.corpus is None:
            return [source(self.dataset("train"))]
        return corpus_sources(self.registered(self.corpus))

    def on_corpus(self, name: str) -> Self:
        return self.model_copy(update={"corpus": self.registered(name).name, "files": None})

    @staticmethod
    def registered(name: str) -> Corpus | ImageCorpus:
        """Return the registered corpus of a name; raises `ValueError` for an unknown one."""
        return get_corpus(name)


def _base_name(files: str | ParallelFiles) -> str:
    """Return the name of a file, or those of two, without their folders."""
    if isinstance(files, str):
        return PurePath(files).name
    return f"{PurePath(files.source).name} and {PurePath(files.target).name}"


def corpus_sources(corpus: CorpusEntry) -> list[dict[str, str]]:
    """Return the entries of the manifest's `provenance.data` for a corpus: itself, or the sources that it lists."""
    listed = corpus.listed_sources()
    if not listed:
        return [source(corpus.name, corpus.homepage, corpus.licence)]
    return [source(f"{corpus.folder}: {each.name}", each.homepage, each.licence) for each in listed]


def source(name: str, homepage: str = OWN_FILES, licence: str = OWN_FILES) -> dict[str, str]:
    """Return an entry of the manifest's `provenance.data`."""
    return {"name": name, "homepage": homepage, "licence": licence}
