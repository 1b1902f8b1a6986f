"""The sentence pairs that a translation model is trained and measured on."""

from pathlib import Path

from training.data.augmentation import augmented
from training.data.corpora import get_corpus
from training.data.own_files import read_split
from training.tasks.translation.settings import PairSettings

__all__ = ["split_pairs", "training_pairs"]


def split_pairs(data: PairSettings, split: str, data_dir: Path) -> list[tuple[str, str]]:
    """Return source and target texts of a split.

    Raises `ValueError` for a column that the corpus does not have, and the errors of `read_split` for own files.
    """
    if data.files is not None:
        return read_split(data.files, split, data_dir)[: data.limit]
    assert data.corpus is not None
    return _corpus_pairs(data, data.corpus, split, data_dir)[: data.limit]


def training_pairs(data: PairSettings, data_dir: Path, seed: int) -> list[tuple[str, str]]:
    """Return the pairs of an epoch: the training split, further corpora, and changed copies of both.

    Raises the errors of `split_pairs`.
    """
    pairs = split_pairs(data, "train", data_dir)
    for corpus, copies in data.also.items():
        pairs += _corpus_pairs(data, corpus, "train", data_dir) * copies
    if data.augment is None:
        return pairs
    return augmented(pairs, data.augment, (data.source, data.target), seed)


def _corpus_pairs(data: PairSettings, name: str, split: str, data_dir: Path) -> list[tuple[str, str]]:
    corpus = get_corpus(name)
    for column in (data.source, data.target):
        if column not in corpus.columns:
            raise ValueError(f"corpus {corpus.name!r} has no column {column!r}; it has {', '.join(corpus.columns)}")
    source, target = corpus.columns.index(data.source), corpus.columns.index(data.target)
    return [(record[source], record[target]) for record in corpus.records(split, data_dir)]
