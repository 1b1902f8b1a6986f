"""The sentence pairs that a translation model is trained and measured on."""

import random
from pathlib import Path

from training.data.augmentation import augmented
from training.data.corpora import get_corpus
from training.data.entities import Entities, TextPair
from training.data.own_files import read_split
from training.tasks.translation.settings import PairSettings

__all__ = ["TrainingPairs", "split_pairs"]


def split_pairs(data: PairSettings, split: str, data_dir: Path) -> list[TextPair]:
    """Return source and target texts of a split.

    Raises `ValueError` for a column that the corpus does not have, and the errors of `read_split` for own files.
    """
    if data.files is not None:
        return read_split(data.files, split, data_dir)[: data.limit_of(split)]
    assert data.corpus is not None
    return _corpus_pairs(data, data.corpus, split, data_dir)[: data.limit_of(split)]


class TrainingPairs:
    """The training split, pairs of further corpora, and changed copies of both, which each epoch draws anew."""

    def __init__(self, data: PairSettings, data_dir: Path, seed: int) -> None:
        """Raises the errors of `split_pairs`."""
        self._data, self._seed = data, seed
        self._pairs = split_pairs(data, "train", data_dir)
        self._further = {corpus: _corpus_pairs(data, corpus, "train", data_dir) for corpus in data.also}
        self._entities = Entities((data.source, data.target), self._pairs)

    def epoch(self, number: int) -> list[TextPair]:
        """Return the pairs of an epoch; the same number always gives the same pairs."""
        generator = random.Random(f"pairs-{self._seed}-{number}")
        pairs = list(self._pairs)
        for corpus, copies in self._data.also.items():
            further = self._further[corpus] * copies
            if get_corpus(corpus).slots:
                further = [self._entities.filled(pair, generator) for pair in further]
            pairs += further
        if self._data.augment is None:
            return pairs
        return augmented(pairs, self._data.augment, self._entities, generator)


def _corpus_pairs(data: PairSettings, name: str, split: str, data_dir: Path) -> list[TextPair]:
    corpus = get_corpus(name)
    for column in (data.source, data.target):
        if column not in corpus.columns:
            raise ValueError(f"corpus {corpus.name!r} has no column {column!r}; it has {', '.join(corpus.columns)}")
    source, target = corpus.columns.index(data.source), corpus.columns.index(data.target)
    return [(record[source], record[target]) for record in corpus.records(split, data_dir)]
