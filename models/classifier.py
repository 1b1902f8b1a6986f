"""Classifiers: texts in, probabilities of their classes out. All log-probabilities are base e.

Shapes: `B` texts, `T` tokens, `k` classes asked for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from models.backend import Array, Backend
from models.errors import BundleError, QueryError, TextTooLongError
from models.manifest import Manifest
from models.texts import CHARACTERS_PER_TOKEN, checked_text, padded, several
from models.tokenization import EncoderTokenizer

__all__ = ["Classification", "Classifier", "ClassifyQuery", "Label", "best_labels", "read_labels"]

_BATCH_TOKENS = 1024
"""Positions that are computed together, padding included: more are no faster, and each takes some 30 kB."""
_BATCH_COST = 16
"""Padding of a text beyond which a batch of its own costs less, in tokens."""


@dataclass(frozen=True, slots=True)
class Label:
    """A class that a text may be of."""

    label: str
    log_probability: float

    @property
    def probability(self) -> float:
        return math.exp(self.log_probability)


@dataclass(frozen=True, slots=True)
class Classification:
    """A text and its classes, most probable first."""

    text: str
    labels: tuple[Label, ...]
    """Fewer than asked for where a sparse-softmax gives fewer a probability."""


@dataclass(frozen=True, slots=True)
class ClassifyQuery:
    """A checked and tokenized text."""

    text: str
    tokens: tuple[int, ...]
    """`[CLS]` and `[SEP]` included."""
    top_k: int

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def result_items(self) -> int:
        """Labels of the result, at most."""
        return self.top_k


class Classifier:
    """A loaded bundle that classifies texts. Safe to call from several threads.

    `classify` does a whole job; a server checks and tokenizes queries as they come (`query`) and runs them in batches
    (`run`).
    """

    def __init__(
        self, manifest: Manifest, tokenizer: EncoderTokenizer, labels: Sequence[str], backend: Backend
    ) -> None:
        self.manifest = manifest
        self.backend = backend
        self.labels = tuple(labels)
        self._tokenizer = tokenizer

    @classmethod
    def from_bundle(cls, path: Path, manifest: Manifest, backend: Backend) -> Self:
        try:
            tokenizer = EncoderTokenizer.from_file(path / manifest.text.tokenizer)
        except ValueError as error:
            raise BundleError(str(path), [str(error)]) from error
        if problems := manifest.tokenizer_problems(tokenizer):
            raise BundleError(str(path), problems)
        return cls(manifest, tokenizer, read_labels(path, manifest), backend)

    def classify(self, texts: Sequence[str], top_k: int = 5, *, truncate: bool = False) -> list[Classification]:
        """The `top_k` most probable classes of each text, all where there are fewer; none of probability 0.

        `truncate` keeps head and tail of a text that is too long. Raises `QueryError` for `top_k` below 1, and its
        `TextTooLongError`.
        """
        return self.run([self.query(text, top_k, truncate=truncate) for text in several(texts)])

    def query(self, text: str, top_k: int = 5, *, truncate: bool = False) -> ClassifyQuery:
        """Checks and tokenizes one text; see `classify`."""
        if top_k < 1:
            raise QueryError(f"top_k must be at least 1, not {top_k}")
        limit = self.manifest.text.max_tokens
        characters = limit * CHARACTERS_PER_TOKEN
        text = checked_text(text)
        read = text
        if len(read) > characters:
            if not truncate:
                raise TextTooLongError(len(read), characters, "characters")
            read = f"{read[: characters // 2]} {read[-characters // 2 :]}"
        tokens = self._tokenizer.encode_batch([read])[0]
        if len(tokens) > limit:
            if not truncate:
                raise TextTooLongError(len(tokens), limit)
            tokens = self._tokenizer.framed(tokens[1:-1], limit)
        return ClassifyQuery(text, tuple(tokens), min(top_k, len(self.labels)))

    def run(self, queries: Sequence[ClassifyQuery]) -> list[Classification]:
        """Results in the order of the queries; similar lengths are computed together."""
        order = sorted(range(len(queries)), key=lambda index: -queries[index].length)
        found: dict[int, Classification] = {}
        while order:
            longest = queries[order[0]].length
            close = sum(longest - queries[index].length <= _BATCH_COST for index in order)
            count = max(1, min(close, _BATCH_TOKENS // longest))
            group, order = order[:count], order[count:]
            found |= zip(group, self._run([queries[index] for index in group]), strict=True)
        return [found[index] for index in range(len(queries))]

    def _run(self, queries: Sequence[ClassifyQuery]) -> list[Classification]:
        inputs = padded([query.tokens for query in queries])
        top_k = np.array(max(query.top_k for query in queries))
        values, classes = self.backend.run("classify", {**inputs, "k": top_k}, ["log_probabilities", "classes"])
        rows = best_labels(self.labels, values, classes, [query.top_k for query in queries])
        return [Classification(query.text, row) for query, row in zip(queries, rows, strict=True)]


def read_labels(bundle: Path, manifest: Manifest) -> list[str]:
    """The labels of a classifier; raises `BundleError` where they are not those that the manifest describes."""
    assert manifest.classes is not None
    file, count = manifest.classes.file, manifest.classes.count
    try:
        labels = (bundle / file).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except ValueError as error:
        raise BundleError(str(bundle), [f"{file} is not UTF-8: {error}"]) from error
    if len(labels) != count or len(set(labels)) != count:
        raise BundleError(str(bundle), [f"{file} does not have {count} different labels"])
    return labels


def best_labels(
    labels: Sequence[str], log_probabilities: Array, classes: Array, counts: Sequence[int]
) -> list[tuple[Label, ...]]:
    """The first `counts` `[B]` classes of each row of `[B, k]` that are not of probability 0."""
    return [
        tuple(
            Label(labels[number], value)
            for number, value in zip(numbers[:count], values[:count], strict=True)
            if value != -math.inf
        )
        for numbers, values, count in zip(classes.tolist(), log_probabilities.tolist(), counts, strict=True)
    ]
