"""Texts and their classes: from a corpus of the registry, or from a user's own files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data.corpora import get_corpus
from training.data.corpus_splits import read_columns
from training.data.own_files import LABELLED
from training.tasks.classification_quality import OUT_OF_SCOPE
from training.tasks.text_classification.settings import LabelledSettings

__all__ = ["LabelledText", "known_texts", "label_ids", "out_of_scope_texts", "read_labelled"]


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text and its classes."""

    labels: tuple[str, ...]
    """Different ones; none for a text of no class."""
    text: str


def read_labelled(data: LabelledSettings, split: str, data_dir: Path) -> list[LabelledText]:
    """Return the texts of `train`, `dev` or `test`.

    Raises `ValueError` for several labels where one is expected, and the errors of `read_columns`.
    """
    outside = out_of_scope_texts(data, split, data_dir) if data.out_of_scope else []
    pairs = read_columns(data, split, data_dir, LABELLED)
    limits = [limit for limit in (data.limit, data.train_limit if split == "train" else None) if limit is not None]
    if limits:  # files are often sorted by class
        count = min(*limits, len(pairs))
        pairs = [pairs[index * len(pairs) // count] for index in range(count)]
    texts = [LabelledText(_labels(label, text, data.multi_label), text) for label, text in pairs]
    return texts + [LabelledText((OUT_OF_SCOPE,), text) for text in outside]


def _labels(label: str, text: str, several: bool) -> tuple[str, ...]:
    if not several:
        return (label,)
    labels = tuple(dict.fromkeys(part.strip() for part in label.split(",")))
    if "" in labels:
        raise ValueError(f"labels {label!r} of text {text[:40]!r}: one of them is empty")
    return labels


def out_of_scope_texts(data: LabelledSettings, split: str, data_dir: Path) -> list[str]:
    """Return the corpus's out-of-scope texts; raises `ValueError` if the recipe asks for them and there are none."""
    name = f"oos_{split}"
    if data.corpus is None or name not in get_corpus(data.corpus).splits:
        if data.out_of_scope:
            raise ValueError(f"data.out_of_scope: {data.dataset(split)} has no texts of no class")
        return []
    return [text for _, text in get_corpus(data.corpus).records(name, data_dir)][: data.limit]


def known_texts(data: LabelledSettings, split: str, data_dir: Path, labels: Sequence[str]) -> list[LabelledText]:
    """Return the texts of `read_labelled`, without those of classes that a limit left without a training text."""
    texts = read_labelled(data, split, data_dir)
    if data.limit is None and data.train_limit is None:
        return texts
    return [each for each in texts if set(each.labels) <= set(labels)]


def label_ids(texts: Sequence[LabelledText], labels: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the indices of each text's classes; raises `ValueError` naming classes that are not among `labels`."""
    places = {label: index for index, label in enumerate(labels)}
    unknown = sorted({label for text in texts for label in text.labels if label not in places})
    if unknown:
        raise ValueError(
            f"labels that no training text has: {', '.join(unknown[:10])}; "
            "where texts are held out of the training file, its classes need some more"
        )
    return [tuple(places[label] for label in text.labels) for text in texts]
