"""Texts and their classes: from a corpus of the registry, or from a user's own files."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from training.data.corpora import get_corpus
from training.data.corpus_splits import read_columns
from training.data.out_of_scope import noise_text, part_of_text, texts_of_other_languages
from training.data.own_files import LABELLED
from training.data.typing_errors import with_typing_errors
from training.tasks.classification_quality import OUT_OF_SCOPE
from training.tasks.text_classification.settings import LabelledSettings

__all__ = ["LabelledText", "TrainingTexts", "check_training_labels", "label_ids", "out_of_scope_texts", "read_labelled"]


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text and its classes."""

    labels: tuple[str, ...]
    """Different ones; none for a text of no class."""
    text: str


def read_labelled(data: LabelledSettings, split: str, data_dir: Path) -> list[LabelledText]:
    """Return the texts of `train`, `dev` or `test`, without those labelled `oos` where the recipe has that class.

    Raises `ValueError` for several labels where one is expected, and the errors of `read_columns`.
    """
    pairs = _records(data, split, data_dir)
    if data.out_of_scope:
        pairs = [(label, text) for label, text in pairs if label != OUT_OF_SCOPE]
    return [LabelledText(_labels(label, text, data.multi_label), text) for label, text in pairs]


def _records(data: LabelledSettings, split: str, data_dir: Path) -> list[tuple[str, str]]:
    pairs = read_columns(data, split, data_dir, LABELLED)
    if (limit := data.limit_of(split)) is not None:  # files are often sorted by class
        count = min(limit, len(pairs))
        pairs = [pairs[index * len(pairs) // count] for index in range(count)]
    return [(label, text) for label, text in pairs]


class TrainingTexts:
    """The training split, texts of no class among them, with the changed and additional texts of each epoch."""

    def __init__(self, data: LabelledSettings, data_dir: Path, seed: int) -> None:
        """Raises the errors of `read_labelled`, `out_of_scope_texts` and, for other languages, `Corpus.records`."""
        self._data, self._seed = data, seed
        self._texts = read_labelled(data, "train", data_dir)
        self._outside = out_of_scope_texts(data, "train", data_dir) if data.out_of_scope else []
        wanted = data.augment is not None and data.augment.other_languages
        self._other_languages = texts_of_other_languages(data_dir) if wanted else []

    def epoch(self, number: int) -> list[LabelledText]:
        """Return the texts of an epoch; the same number always gives the same texts."""
        augment, generator = self._data.augment, random.Random(f"texts-{self._seed}-{number}")
        if augment is None:
            return self._texts + [LabelledText((OUT_OF_SCOPE,), text) for text in self._outside]
        added = [noise_text(generator) for _ in range(augment.noise)]
        added += [part_of_text(self._other_languages, generator) for _ in range(augment.other_languages)]
        outside = [LabelledText((OUT_OF_SCOPE,), text) for text in self._outside * augment.out_of_scope_copies]
        texts = [
            replace(each, text=with_typing_errors(each.text, generator))
            if generator.random() < augment.typing_errors
            else each
            for each in self._texts + outside
        ]
        return texts + [LabelledText((OUT_OF_SCOPE,), text) for text in added]


def _labels(label: str, text: str, several: bool) -> tuple[str, ...]:
    if not several:
        return (label,)
    labels = tuple(dict.fromkeys(part.strip() for part in label.split(",")))
    if "" in labels:
        raise ValueError(f"labels {label!r} of text {text[:40]!r}: one of them is empty")
    return labels


def out_of_scope_texts(data: LabelledSettings, split: str, data_dir: Path) -> list[str]:
    """Return the texts of no class: a split of their own in a corpus, and those labelled `oos` in the user's files.

    Raises `ValueError` where the recipe trains on such texts and there are none.
    """
    if data.corpus is not None:
        corpus, name = get_corpus(data.corpus), f"oos_{split}"
        found = [text for _, text in corpus.records(name, data_dir)][: data.limit] if name in corpus.splits else []
    else:
        labelled = _records(data, split, data_dir) if data.out_of_scope else []
        found = [text for label, text in labelled if label == OUT_OF_SCOPE]
    if data.out_of_scope and not found and split != "test":
        dataset = data.dataset(split)
        raise ValueError(f"data.out_of_scope: {dataset} has no texts of no class ({OUT_OF_SCOPE}) in {split}")
    return found


def label_ids(texts: Sequence[LabelledText], labels: Sequence[str], *, unseen: bool = False) -> list[tuple[int, ...]]:
    """Return the indices of each text's classes; with `unseen`, classes that are not among `labels` come after them.

    Raises `ValueError` naming such classes without it.
    """
    places = {label: index for index, label in enumerate(labels)}
    unknown = sorted({label for text in texts for label in text.labels if label not in places})
    if unseen:
        places |= {label: index for index, label in enumerate(unknown, len(labels))}
    elif unknown:
        raise ValueError(
            f"classes that the model does not have: {', '.join(unknown[:10])}; "
            "the data has changed since the model was trained"
        )
    return [tuple(places[label] for label in text.labels) for text in texts]


def check_training_labels(texts: Sequence[LabelledText], labels: Sequence[str], data: LabelledSettings) -> None:
    """Raise `ValueError` for texts of a class without a training text, unless a limit may leave such classes."""
    unknown = sorted({label for text in texts for label in text.labels}.difference(labels))
    if unknown and not data.limited:
        raise ValueError(
            f"labels that no training text has: {', '.join(unknown[:10])}; add texts of them to the training file, or "
            "remove theirs from the others"
        )
