"""Splits of corpora of two columns; what a corpus has no file for is held out of its training texts."""

from pathlib import Path

from training.data.corpora import get_corpus
from training.data.own_files import Columns, TextPair, held_out
from training.data.settings import Split

__all__ = ["corpus_split"]


def corpus_split(name: str, split: str, data_dir: Path, columns: Columns) -> list[TextPair]:
    """The records of `train`, `dev` or `test` (see `training.data.own_files.held_out`).

    Raises `ValueError` for a corpus of other columns and for too few texts to hold some out, and what `Corpus.records`
    raises.
    """
    corpus = get_corpus(name)
    if corpus.columns != columns.names:
        found = ", ".join(corpus.columns)
        raise ValueError(f"corpus {name!r} has no {columns.names[0]} for each text: its columns are {found}")
    wanted: tuple[Split, ...] = ("dev", "test")
    missing = [each for each in wanted if each not in corpus.splits]
    source = "train" if split in missing else split
    pairs = [(first, second) for first, second in corpus.records(source, data_dir)]
    if source != "train" or not missing:
        return pairs
    places = held_out({pair[columns.key] for pair in pairs}, missing, columns)
    return [pair for pair in pairs if places.get(pair[columns.key], "train") == split]
