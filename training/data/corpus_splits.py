"""Splits of corpora of two columns; splits without a file are held out of the training texts."""

from pathlib import Path

from training.data.corpora import get_corpus
from training.data.own_files import Columns, TextPair, pairs_of_split, read_split
from training.data.settings import CorpusOrFiles, Split

__all__ = ["read_columns"]


def read_columns(data: CorpusOrFiles, split: str, data_dir: Path, columns: Columns) -> list[TextPair]:
    """Return the records of `train`, `dev` or `test` of a corpus or of own files.

    A split without a file is held out of the training texts (see `training.data.own_files.pairs_of_split`).
    Raises `ValueError` for a corpus of other columns and for too few texts to hold some out, and the errors of
    `Corpus.records` and `read_split`.
    """
    if data.files is not None:
        return read_split(data.files, split, data_dir, columns)
    assert data.corpus is not None
    corpus = get_corpus(data.corpus)
    if corpus.columns != columns.names:
        found = ", ".join(corpus.columns)
        raise ValueError(f"corpus {corpus.name!r} has no {columns.names[0]} for each text: its columns are {found}")
    wanted: tuple[Split, ...] = ("dev", "test")
    missing = [each for each in wanted if each not in corpus.splits]
    source = "train" if split in missing else split
    pairs = [(first, second) for first, second in corpus.records(source, data_dir)]
    held_out = missing if source == "train" else []
    return pairs_of_split(pairs, split, held_out, columns)
