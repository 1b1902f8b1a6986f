"""The texts that a language model is trained and measured on."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from models.text.tokenization import WordTokenizer
from training.data.corpora import get_corpus
from training.data.mapped_tokens import MappedTokens
from training.data.own_texts import iterate_lines
from training.run.progress import counted
from training.tasks.language_model.settings import DataSettings, TextData

__all__ = ["encoded_split", "iterate_texts", "split_texts"]

_ENCODED_AT_ONCE = 10_000
"""Texts that are held in memory while their tokens are found."""


def split_texts(data: TextData, split: str, data_dir: Path) -> list[str]:
    """Return the texts of a split; only training data is ever deduplicated."""
    return list(iterate_texts(data, split, data_dir))


def iterate_texts(data: TextData, split: str, data_dir: Path) -> Iterator[str]:
    """Yield the texts of a split.

    Held in memory are registered corpora, CSV files, files in other encodings than UTF-8, training files from which
    other splits are held out, and the training texts where they are deduplicated.
    """
    texts: Iterable[str]
    if data.files is not None:
        texts = iterate_lines(data.files, split, data_dir, data.context)
    else:
        assert data.corpus is not None
        texts = get_corpus(data.corpus).texts(split, data_dir, data.column)
    if split == "train":
        texts = counted(texts, "training texts")
        texts = dict.fromkeys(texts) if data.deduplicate else texts
    return itertools.islice(texts, data.limit_of(split))


def encoded_split(data: DataSettings, split: str, data_dir: Path, tokenizer: WordTokenizer) -> MappedTokens:
    """Return the token ids of the texts of a split, without sentence ends."""

    def encoded() -> Iterator[list[int]]:
        texts = iterate_texts(data, split, data_dir)
        while chunk := list(itertools.islice(texts, _ENCODED_AT_ONCE)):
            yield from tokenizer.encode_batch(chunk)

    return MappedTokens(encoded())
