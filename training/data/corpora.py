"""The corpora that recipes can name, which `corpora.yaml` describes, and their download."""

from collections.abc import Mapping
from pathlib import Path

from training.data.corpus import Corpus, fetch
from training.data.image_corpora import IMAGE_CORPORA
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
    """Download a corpus of texts or images into the data directory, convert and check it, and return its folder.

    Raises `ValueError` for an unknown corpus, one that cannot be made from the files at public addresses, or one whose
    address serves something else; `OSError` where the network fails. Nothing is written then.
    """
    corpus = IMAGE_CORPORA[name] if name in IMAGE_CORPORA else get_corpus(name)
    if not corpus.sources:
        raise ValueError(f"no public address serves exactly the files of {name!r}; it was made from {corpus.homepage}")
    files: Mapping[str, bytes] = dict(found for source in corpus.sources for found in fetch(source))
    if corpus.conversion is not None:
        files = corpus.conversion(files)
    names = {file.name for file in corpus.all_files()}
    kept = {file: content for file, content in files.items() if file in names}
    try:
        corpus.check(kept)
    except ValueError as error:
        raise ValueError(f"{corpus.sources[0].url}: {error}") from None
    folder = data_dir / corpus.folder
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in kept.items():
        (folder / file).write_bytes(content)
    return folder
