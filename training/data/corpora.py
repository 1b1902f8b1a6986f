"""The corpora that recipes can name, which `corpora.yaml` describes, and their download."""

from collections.abc import Mapping
from pathlib import Path

from training.data.corpus import Corpus, fetch
from training.settings import read_entries

__all__ = ["CORPORA", "download", "get_corpus"]

CORPORA: Mapping[str, Corpus] = read_entries(Corpus, Path(__file__).with_suffix(".yaml"))
"""Registered corpora by name."""


def get_corpus(name: str) -> Corpus:
    """Return the corpus of that name; raises `ValueError` naming the known ones."""
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; known corpora: {', '.join(CORPORA)}")
    return CORPORA[name]


def download(name: str, data_dir: Path) -> Path:
    """Download a corpus into the data directory, check every file and return its folder.

    Raises `ValueError` for an unknown corpus, one without a public address for exactly these files, or one whose
    address serves something else; `OSError` where the network fails.
    """
    corpus = get_corpus(name)
    if not corpus.sources:
        raise ValueError(f"no public address serves exactly the files of {name!r}; it was made from {corpus.homepage}")
    folder = data_dir / corpus.folder
    folder.mkdir(parents=True, exist_ok=True)
    for source in corpus.sources:
        for file, content in fetch(source):
            (folder / file).write_bytes(content)
    return folder
