"""The texts that a language model is trained and measured on."""

from collections.abc import Iterable
from pathlib import Path

from training.data.corpora import get_corpus
from training.data.own_texts import read_lines
from training.tasks.language_model.settings import DataSettings

__all__ = ["split_texts"]


def split_texts(data: DataSettings, split: str, data_dir: Path) -> list[str]:
    """Return the texts of a split; only training data is ever deduplicated."""
    texts: Iterable[str]
    if data.files is not None:
        texts = read_lines(data.files, split, data_dir, data.context)
    else:
        assert data.corpus is not None
        texts = get_corpus(data.corpus).texts(split, data_dir, data.column)
    kept = list(dict.fromkeys(texts)) if data.deduplicate and split == "train" else list(texts)
    return kept[: data.limit]
