"""The sentence pairs that a translation model is trained and measured on."""

from pathlib import Path

from training.data.corpora import get_corpus
from training.data.own_files import read_split
from training.tasks.translation.settings import PairSettings

__all__ = ["split_pairs"]


def split_pairs(data: PairSettings, split: str, data_dir: Path) -> list[tuple[str, str]]:
    """Return source and target texts of a split.

    Raises `ValueError` for a column that the corpus does not have, and the errors of `read_split` for own files.
    """
    if data.files is not None:
        return read_split(data.files, split, data_dir)[: data.limit]
    assert data.corpus is not None
    corpus = get_corpus(data.corpus)
    for column in (data.source, data.target):
        if column not in corpus.columns:
            raise ValueError(f"corpus {corpus.name!r} has no column {column!r}; it has {', '.join(corpus.columns)}")
    source, target = corpus.columns.index(data.source), corpus.columns.index(data.target)
    pairs = [(record[source], record[target]) for record in corpus.records(split, data_dir)]
    return pairs[: data.limit]
