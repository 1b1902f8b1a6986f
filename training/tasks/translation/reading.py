"""The sentence pairs that a translation model is trained and measured on."""

import random
from collections.abc import Sequence
from pathlib import Path

from training.data.augmentation import augmented
from training.data.corpora import get_corpus
from training.data.entities import Entities, TextPair
from training.data.own_files import read_split
from training.tasks.translation.settings import PairSettings

__all__ = ["TrainingPairs", "split_pairs", "template_pairs"]


def split_pairs(data: PairSettings, split: str, data_dir: Path) -> list[TextPair]:
    """Return source and target texts of a split; those of further corpora are in `dev` alone, see `FurtherPairs.dev`.

    Raises `ValueError` for a column that the corpus does not have, and the errors of `read_split` for own files.
    """
    if data.files is not None:
        pairs = read_split(data.files, split, data_dir)[: data.limit_of(split)]
    else:
        assert data.corpus is not None
        pairs = _corpus_pairs(data, data.corpus, split, data_dir)[: data.limit_of(split)]
    if split == "dev":
        for corpus, further in data.also.items():
            pairs += _corpus_pairs(data, corpus, split, data_dir)[: further.dev] if further.dev else []
    return pairs


_PHRASES_SEED = 571
"""The 125 pairs that it draws of `everyday-de-en` have none of `benchmarks/everyday_phrases.tsv`, as a test checks."""


def template_pairs(data: PairSettings, data_dir: Path, count: int) -> list[TextPair]:
    """Return pairs of those training corpora that have slots, which are filled; at most `count` of each corpus."""
    generator = random.Random(_PHRASES_SEED)
    names = [name for name in data.also if get_corpus(name).slots]
    entities = Entities((data.source, data.target), split_pairs(data, "dev", data_dir) if names else [])
    found = [_drawn(_corpus_pairs(data, name, "train", data_dir), count, generator) for name in names]
    return [entities.filled(pair, generator) for pairs in found for pair in pairs]


class TrainingPairs:
    """The training split, pairs of further corpora, and changed copies of both, which each epoch draws anew."""

    def __init__(self, data: PairSettings, data_dir: Path, seed: int) -> None:
        """Raises the errors of `split_pairs`."""
        self._data, self._seed = data, seed
        self._pairs = split_pairs(data, "train", data_dir)
        self._further = {corpus: _corpus_pairs(data, corpus, "train", data_dir) for corpus in data.also}
        self._entities = Entities((data.source, data.target), self._pairs, data.made_up_names)

    def originals(self) -> list[TextPair]:
        """Return all pairs as they are, those of corpora of templates left out."""
        further = [pair for name, pairs in self._further.items() if not get_corpus(name).slots for pair in pairs]
        return self._pairs + further

    def epoch(self, number: int) -> list[TextPair]:
        """Return the pairs of an epoch; the same number always gives the same pairs."""
        generator = random.Random(f"pairs-{self._seed}-{number}")
        pairs = _drawn(self._pairs, self._data.draw, generator)
        unchanged: list[TextPair] = []
        for corpus, settings in self._data.also.items():
            further = _drawn(self._further[corpus], settings.draw, generator) * settings.copies
            if get_corpus(corpus).slots:
                further = [self._entities.filled(pair, generator) for pair in further]
            (pairs if settings.augment else unchanged).extend(further)
        if self._data.augment is not None:
            pairs = augmented(pairs, self._data.augment, self._entities, generator)
        return pairs + unchanged


def _drawn(pairs: Sequence[TextPair], count: int | None, generator: random.Random) -> list[TextPair]:
    return list(pairs) if count is None or count >= len(pairs) else generator.sample(pairs, count)


def _corpus_pairs(data: PairSettings, name: str, split: str, data_dir: Path) -> list[TextPair]:
    corpus = get_corpus(name)
    for column in (data.source, data.target):
        if column not in corpus.columns:
            raise ValueError(f"corpus {corpus.name!r} has no column {column!r}; it has {', '.join(corpus.columns)}")
    source, target = corpus.columns.index(data.source), corpus.columns.index(data.target)
    return [(record[source], record[target]) for record in corpus.records(split, data_dir)]
