"""Tests of the corpus registry: reading and checking files, downloading them, and the entries themselves."""

import gzip
import hashlib
import http.server
import json
import re
import threading
import urllib.error
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from training.data.conversions import CONVERSIONS
from training.data.corpora import CORPORA, ORIGIN, download, get_corpus
from training.data.corpus import Corpus, CorpusFile, Source, matches, read_tsv

REGISTERED = list(CORPORA.values())  # before any fixture adds one
HELD_OUT = [("label", "text"), ("source", "target")]
"""Columns of corpora whose missing splits are held out of the training texts."""
TRAIN = b"a b\nc d \n\ne\n"
PAIRS = b"ja\tyes\nnein\tno\n"


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


ONLY_TRAIN = {"train": CorpusFile(name="train.txt", checksums=(_sha256(TRAIN),))}


def _corpus(content: bytes, **changes: object) -> Corpus:
    """A corpus `small` whose splits all have that content."""
    plain = Corpus(
        name="small",
        folder="small-folder",
        description="",
        homepage="https://example.org/small",
        licence="CC0",
        release_allowed=True,
        columns=("text",),
        splits={split: CorpusFile(name=f"{split}.txt", checksums=(_sha256(content),)) for split in ("train", "dev")},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "small-folder"
    path.mkdir(parents=True)
    return path


# ---- reading ----------------------------------------------------------------------------------------------


def test_lines_become_stripped_texts(folder: Path) -> None:
    (folder / "train.txt").write_bytes(TRAIN)
    corpus = _corpus(TRAIN)
    assert list(corpus.texts("train", folder.parent, "text")) == ["a b", "c d", "", "e"]
    assert list(corpus.records("train", folder.parent)) == [("a b",), ("c d",), ("",), ("e",)]


def test_packed_files_are_read(folder: Path) -> None:
    (folder / "train.txt.gz").write_bytes(gzip.compress(TRAIN))
    assert list(_corpus(TRAIN).texts("train", folder.parent, "text")) == ["a b", "c d", "", "e"]


def test_columns_are_read_by_name(folder: Path) -> None:
    (folder / "train.txt").write_bytes(PAIRS)
    corpus = _corpus(PAIRS, columns=("de", "en"), reader=read_tsv)
    assert list(corpus.texts("train", folder.parent, "en")) == ["yes", "no"]
    assert list(corpus.records("train", folder.parent)) == [("ja", "yes"), ("nein", "no")]


def _side_by_side(folder: Path, *contents: bytes) -> Corpus:
    for name, content in zip(("train.de", "train.en"), contents, strict=True):
        (folder / name).write_bytes(content)
    files = tuple(
        CorpusFile(name=name, checksums=(_sha256(content),))
        for name, content in zip(("train.de", "train.en"), contents, strict=True)
    )
    return _corpus(b"", splits={"train": files}, columns=("de", "en"), reader=read_tsv)


def test_files_side_by_side_are_columns(folder: Path) -> None:
    corpus = _side_by_side(folder, b"ja\nnein\n", b"yes\nno\n")
    assert list(corpus.records("train", folder.parent)) == [("ja", "yes"), ("nein", "no")]
    assert list(corpus.texts("train", folder.parent, "en")) == ["yes", "no"]


def test_each_of_the_files_side_by_side_is_checked(folder: Path) -> None:
    corpus = _side_by_side(folder, b"ja\nnein\n", b"yes\nno\n")
    (folder / "train.en").write_bytes(b"yes\nmaybe\n")
    with pytest.raises(ValueError, match=r"train\.en .*'small' \(checksum\)"):
        list(corpus.records("train", folder.parent))
    (folder / "train.en").unlink()
    with pytest.raises(FileNotFoundError, match=r"train\.en"):
        list(corpus.records("train", folder.parent))


def test_files_side_by_side_of_other_lengths_are_refused(folder: Path) -> None:
    corpus = _side_by_side(folder, b"ja\nnein\n", b"yes\n")
    with pytest.raises(ValueError, match="small, train: its files have 2, 1 lines"):
        list(corpus.records("train", folder.parent))


def test_a_tab_within_a_file_side_by_side_is_text(folder: Path) -> None:
    """Multi30k's German training file has one."""
    corpus = _side_by_side(folder, b"ja\nne\tin\n", b"yes\nno\n")
    assert list(corpus.records("train", folder.parent)) == [("ja", "yes"), ("ne\tin", "no")]


def test_one_of_several_checksums_is_enough(folder: Path) -> None:
    (folder / "train.txt").write_bytes(TRAIN)
    sha1 = f"sha1:{hashlib.sha1(TRAIN).hexdigest()}"
    splits = {"train": CorpusFile(name="train.txt", checksums=(_sha256(b"other"), sha1))}
    assert len(list(_corpus(TRAIN, splits=splits).records("train", folder.parent))) == 4


def test_a_file_without_a_known_checksum_is_read(folder: Path) -> None:
    (folder / "train.txt").write_bytes(TRAIN)
    splits = {"train": CorpusFile(name="train.txt", checksums=())}
    assert len(list(_corpus(TRAIN, splits=splits).records("train", folder.parent))) == 4


@pytest.mark.parametrize("packed", [False, True])
def test_a_changed_file_is_refused(folder: Path, packed: bool) -> None:
    changed = TRAIN + b"f\n"
    path = folder / ("train.txt.gz" if packed else "train.txt")
    path.write_bytes(gzip.compress(changed) if packed else changed)
    with pytest.raises(ValueError, match=r"train\.txt .*'small' \(checksum\)"):
        list(_corpus(TRAIN).records("train", folder.parent))


def test_a_missing_file_says_where_the_corpus_comes_from(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train\.txt .*'small' comes from https://example\.org/small"):
        list(_corpus(TRAIN).records("train", folder.parent))


def test_an_unknown_split_names_the_known_ones(folder: Path) -> None:
    with pytest.raises(ValueError, match="'small' has no split 'valid'; it has train, dev"):
        list(_corpus(TRAIN).records("valid", folder.parent))


def test_an_unknown_column_names_the_known_ones(folder: Path) -> None:
    corpus = _corpus(PAIRS, columns=("de", "en"), reader=read_tsv)
    with pytest.raises(ValueError, match="'small' has no column 'fr'; it has de, en"):
        corpus.texts("train", folder.parent, "fr")


def test_a_record_of_other_columns_is_named_by_its_line(folder: Path) -> None:
    content = b"ja\tyes\nnein\n"
    (folder / "train.txt").write_bytes(content)
    corpus = _corpus(content, columns=("de", "en"), reader=read_tsv)
    with pytest.raises(ValueError, match="small, train, line 2: 1 columns, not 2"):
        list(corpus.records("train", folder.parent))


def test_checksums_name_their_algorithm() -> None:
    assert matches(b"abc", "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    assert matches(b"abc", "sha1:a9993e364706816aba3e25717850c26c9cd0d89d")
    assert not matches(b"abd", "sha1:a9993e364706816aba3e25717850c26c9cd0d89d")


# ---- downloading ------------------------------------------------------------------------------------------


def _register(monkeypatch: pytest.MonkeyPatch, *sources: Source, **changes: object) -> Corpus:
    corpus = _corpus(TRAIN, sources=sources, **changes)
    monkeypatch.setitem(CORPORA, "small", corpus)  # type: ignore[arg-type]
    return corpus


def _served(path: Path, content: bytes) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path.as_uri()


def test_download_writes_what_the_corpus_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "www" / name for name in ("train.txt", "dev.txt")]
    sources = [Source(url=_served(file, TRAIN), checksum=_sha256(TRAIN)) for file in files]
    corpus = _register(monkeypatch, *sources)
    assert download("small", tmp_path / "data") == tmp_path / "data" / "small-folder"
    assert len(list(corpus.records("train", tmp_path / "data"))) == 4
    assert len(list(corpus.records("dev", tmp_path / "data"))) == 4


def test_download_refuses_other_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = _served(tmp_path / "www" / "train.txt", b"not found, but politely")
    _register(monkeypatch, Source(url=url, checksum=_sha256(TRAIN)))
    with pytest.raises(ValueError, match=f"{re.escape(url)} serves something else"):
        download("small", tmp_path / "data")
    assert not list((tmp_path / "data").rglob("*.txt"))


def test_download_unpacks_members_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "small.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inside/first.tokens", TRAIN)
        file.writestr("inside/unused.tokens", b"never read")
    members = {"train.txt": "inside/first.tokens"}
    source = Source(url=archive.as_uri(), checksum=_sha256(archive.read_bytes()), members=members)
    _register(monkeypatch, source, splits=ONLY_TRAIN)
    folder = download("small", tmp_path / "data")
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert json.loads(found.pop(ORIGIN))["sources"] == [
        {"url": archive.as_uri(), "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    ]
    assert found == {"train.txt": TRAIN}


@pytest.mark.parametrize("members", [None, {"train.txt": "inside/train.txt"}])
@pytest.mark.parametrize("content", [b"<html>sign in</html>", b""])
def test_download_of_something_else_is_a_value_error(
    members: dict[str, str] | None, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = _served(tmp_path / "www" / "master.zip", content)
    conversion = CONVERSIONS["swda"] if members is None else None
    _register(monkeypatch, Source(url=url, members=members), splits=ONLY_TRAIN, conversion=conversion)
    with pytest.raises(ValueError, match=f"{re.escape(url)}: BadZipFile: "):
        download("small", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_download_without_one_of_the_files_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _register(monkeypatch, Source(url=_served(tmp_path / "www" / "train.txt", TRAIN)))
    with pytest.raises(ValueError, match=r"dev\.txt of corpus 'small' is missing"):
        download("small", tmp_path / "data")
    assert not (tmp_path / "data").exists()


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Refuses Python's own User-Agent, as some hosts do."""
        refused = "Python" in self.headers["User-Agent"]
        self.send_response(403 if refused else 200)
        self.send_header("Content-Length", str(len(TRAIN) + ("cut" in self.path)))
        self.end_headers()
        self.wfile.write(b"" if refused else TRAIN)

    def log_message(self, *arguments: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_download_speaks_http(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _register(monkeypatch, Source(url=f"{address}/files/train.txt", checksum=_sha256(TRAIN)), splits=ONLY_TRAIN)
    folder = download("small", tmp_path)
    assert (folder / "train.txt").read_bytes() == TRAIN


def test_an_answer_that_is_cut_off_is_an_os_error(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _register(monkeypatch, Source(url=f"{address}/cut/train.txt"), splits=ONLY_TRAIN)
    with pytest.raises(OSError, match=r"/cut/train\.txt sent an incomplete answer: IncompleteRead"):
        download("small", tmp_path)
    assert not list(tmp_path.iterdir())


def test_download_without_the_file_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _register(monkeypatch, Source(url=(tmp_path / "nowhere.txt").as_uri(), checksum=_sha256(TRAIN)))
    with pytest.raises(urllib.error.URLError):
        download("small", tmp_path / "data")


def test_download_needs_a_public_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _register(monkeypatch)
    with pytest.raises(ValueError, match=r"'small'; it was made from https://example\.org/small"):
        download("small", tmp_path)
    assert not list(tmp_path.iterdir())


def test_download_of_an_unknown_corpus(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown corpus 'no-such'"):
        download("no-such", tmp_path)


# ---- the registry -----------------------------------------------------------------------------------------


def test_an_unknown_corpus_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown corpus 'Brown'") as caught:
        get_corpus("Brown")
    assert all(corpus.name in str(caught.value) for corpus in REGISTERED)


@pytest.mark.parametrize("corpus", REGISTERED, ids=lambda corpus: corpus.name)
def test_every_corpus_is_described(corpus: Corpus) -> None:
    assert get_corpus(corpus.name) is corpus
    known = ["train", "dev", "test", "oos_train", "oos_dev", "oos_test"]
    assert list(corpus.splits) == [split for split in known if split in corpus.splits]
    # Labelled texts to select by can be held out of the training texts.
    measured = {"test"} if corpus.columns in HELD_OUT else {"dev", "test"}
    if corpus.packaged or corpus.name == "udhr":
        measured = set()
    assert {"train"} | measured <= set(corpus.splits)
    assert corpus.licence
    assert corpus.description
    assert corpus.packaged or corpus.source_list or corpus.homepage.startswith("https://")
    assert re.fullmatch(r"[a-z0-9_]+", corpus.folder)
    assert len(set(corpus.columns)) == len(corpus.columns) > 0


@pytest.mark.parametrize("corpus", REGISTERED, ids=lambda corpus: corpus.name)
def test_every_checksum_is_well_formed(corpus: Corpus) -> None:
    checksums = [checksum for file in corpus.all_files() for checksum in file.checksums]
    checksums += [source.checksum for source in corpus.sources if source.checksum is not None]
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}|sha1:[0-9a-f]{40}", checksum) for checksum in checksums)
    checked_sources = bool(corpus.sources) and all(source.checksum for source in corpus.sources)
    if corpus.changing:
        assert not checksums
        return
    assert checked_sources or all(file.checksums for file in corpus.all_files())
    assert len(set(checksums)) >= (len(corpus.sources) if checked_sources else len(corpus.splits))


@pytest.mark.parametrize("corpus", REGISTERED, ids=lambda corpus: corpus.name)
def test_every_source_brings_files_that_the_corpus_reads(corpus: Corpus) -> None:
    brought = [name for source in corpus.sources for name in source.members or [source.url.rpartition("/")[2]]]
    if corpus.conversion is None:
        assert set(brought) == (set() if not corpus.sources else {file.name for file in corpus.all_files()})
    assert len(set(brought)) == len(brought)
    assert all(source.url.startswith("https://") for source in corpus.sources)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("tatoeba-de-en", True), ("multi30k", False), ("wikitext-2", True), ("ptb", False), ("swda", False)],
)
def test_only_free_corpora_may_be_released(name: str, allowed: bool) -> None:
    assert get_corpus(name).release_allowed is allowed


def test_a_packaged_corpus_needs_no_data_directory(tmp_path: Path) -> None:
    pairs = list(get_corpus("everyday-de-en").records("train", tmp_path / "missing"))
    assert len(pairs) > 1000
    assert ("Hallo!", "Hello!") in pairs
    for source, target in pairs:
        assert sorted(re.findall(r"{\w+}", source)) == sorted(re.findall(r"{\w+}", target)), source
