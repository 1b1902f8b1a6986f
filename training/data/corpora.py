"""The corpora that recipes can name, which `corpora.yaml` describes, and their download."""

import datetime
import hashlib
import json
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from training.data.corpus import Corpus, CorpusEntry, fetch, unpacked
from training.data.image_corpora import IMAGE_CORPORA
from training.settings import read_entries

__all__ = ["CORPORA", "ORIGIN", "download", "get_corpus"]

ORIGIN = "origin.json"
"""File that `download` adds to a corpus: addresses, SHA-256 of what they served, and when."""
_OTHER_FORMAT = (ValueError, KeyError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error)
"""Errors of conversions, such as that of an HTML page in place of an archive."""

CORPORA: Mapping[str, Corpus] = read_entries(Corpus, Path(__file__).with_suffix(".yaml"))
"""Registered corpora by name."""


def get_corpus(name: str) -> Corpus:
    """Return the corpus of that name; raises `ValueError` naming the known ones."""
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; known corpora: {', '.join(CORPORA)}")
    return CORPORA[name]


def download(name: str, data_dir: Path) -> Path:
    """Download a corpus of texts or images into the data directory, convert and check it, and return its folder.

    Raises `ValueError` for an unknown corpus, one that cannot be made from the files at public addresses, or one whose
    address serves something else; `OSError` where the network fails. Nothing is written then.
    """
    corpus = IMAGE_CORPORA[name] if name in IMAGE_CORPORA else get_corpus(name)
    if not corpus.sources:
        raise ValueError(f"no public address serves exactly the files of {name!r}; it was made from {corpus.homepage}")
    contents = [fetch(source) for source in corpus.sources]
    names = {file.name for file in corpus.all_files()}
    try:
        files = _converted(corpus, contents)
        kept = {name: content for name, content in files.items() if name in names}
        corpus.check(kept)
    except _OTHER_FORMAT as error:
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
        raise ValueError(f"{corpus.sources[0].url}: {reason}") from error
    folder = data_dir / corpus.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in kept.items():
        _write(folder / name, content)
    _write(folder / ORIGIN, _origin(corpus, contents))
    return folder


def _converted(corpus: CorpusEntry, contents: Sequence[bytes]) -> Mapping[str, bytes]:
    files: dict[str, bytes] = {}
    for source, content in zip(corpus.sources, contents, strict=True):
        files |= unpacked(source, content)
    return files if corpus.conversion is None else corpus.conversion(files)


def _origin(corpus: CorpusEntry, contents: Sequence[bytes]) -> bytes:
    """Return a JSON file of where the files come from: what the addresses serve may change."""
    sources = [
        {"url": source.url, "sha256": hashlib.sha256(content).hexdigest()}
        for source, content in zip(corpus.sources, contents, strict=True)
    ]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return json.dumps({"downloaded": now, "sources": sources}, indent=2).encode() + b"\n"


def _write(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.replace(path)
