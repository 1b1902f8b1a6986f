"""Baselines: what simple methods reach on the same data, in seconds, to compare a training with."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MOST_FEATURES",
    "Labels",
    "frequent_class",
    "linear_classifier",
    "linear_probe",
    "micro_f1",
    "nearest_text",
    "text_classifier",
    "tfidf_regression",
    "too_large",
    "word_by_word",
]

MOST_FEATURES = 20_000
"""The most frequent words and pairs of words that a linear classifier has a weight for."""

_PROBE_C = 0.1
"""Inverse strength of the penalty on weights for vectors of an encoder."""

_MOST_WEIGHTS, _MOST_SCORES = 1 << 22, 1 << 25
"""Weights of a regression, of whose values some twenty copies are made while it is fitted, and scores of all its
training examples, up to which it is a baseline."""
_BLOCK = 512
"""Examples whose similarities to all training examples are computed at once."""

Labels = Sequence[tuple[str, ...]]
"""The classes of each text."""


def frequent_class(train: Labels, count: int) -> Labels:
    """Return the most frequent classes of the training examples, `count` times."""
    return [Counter(train).most_common(1)[0][0]] * count


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A regression that takes too much memory to be a baseline."""

    classes: int
    features: int
    examples: int

    @property
    def reason(self) -> str:
        return (
            f"{self.classes:,} classes, {self.features:,} features and {self.examples:,} examples are too many for it"
        )


def too_large(labels: Labels, features: int) -> TooLarge | None:
    """Return why no logistic regression is fitted on so many classes, features and examples; None where one is."""
    found = TooLarge(len({label for each in labels for label in each}), features, len(labels))
    weights, scores = found.classes * features, found.classes * found.examples
    return found if weights > _MOST_WEIGHTS or scores > _MOST_SCORES else None


def text_classifier(train: Sequence[str], labels: Labels) -> tuple[str, Callable[[Sequence[str]], Labels]]:
    """Return a name and a function that classifies texts: `linear_classifier`, or the classes of the most similar text.

    The latter is for a regression that is too large; the name says why.
    """
    large = too_large(labels, MOST_FEATURES)
    if large is None:
        return "logistic regression on TF-IDF", linear_classifier(train, labels)
    nearest = nearest_text(train)
    name = f"nearest training text by TF-IDF (in place of logistic regression: {large.reason})"
    return name, lambda texts: [labels[place] for place in nearest(texts)]


def linear_classifier(train: Sequence[str], labels: Labels) -> Callable[[Sequence[str]], Labels]:
    """Return a function that classifies texts by logistic regression on TF-IDF of words and pairs of words.

    Where texts have several classes, each class has a regression of its own.
    """
    return _fitted(tfidf_regression(), train, labels)


def linear_probe(train: NDArray[np.float32], labels: Labels) -> Callable[[NDArray[np.float32]], Labels]:
    """Return a function that classifies vectors `[N, d]` by logistic regression, as `linear_classifier` does texts."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegression(C=_PROBE_C, max_iter=300)
    return _fitted(Pipeline([("features", StandardScaler()), ("classifier", regression)]), train, labels)


def _fitted(model: Any, train: Any, labels: Labels) -> Callable[[Any], Labels]:
    """Return the predictions of a pipeline; with several classes an input, its step `classifier` is one of each."""
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    if all(len(each) == 1 for each in labels):
        model.fit(train, [label for (label,) in labels])
        return lambda inputs: [(str(label),) for label in model.predict(inputs)]
    classes = MultiLabelBinarizer().fit(labels)
    model.set_params(classifier=OneVsRestClassifier(model["classifier"])).fit(train, classes.transform(labels))
    return lambda inputs: [tuple(map(str, found)) for found in classes.inverse_transform(model.predict(inputs))]


def micro_f1(truth: Labels, predicted: Labels) -> float:
    """Return F1 over all decisions, the accuracy where each text has one class."""
    right = sum(len({*one} & {*other}) for one, other in zip(truth, predicted, strict=True))
    return 2 * right / max(1, sum(map(len, truth)) + sum(map(len, predicted)))


def nearest_text(train: Sequence[str]) -> Callable[[Sequence[str]], list[int]]:
    """Return a function that finds the place of the most similar training text of each text, by cosines of TF-IDF."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    features = TfidfVectorizer(sublinear_tf=True)
    known = features.fit_transform(train).T.tocsc()  # of rows of length 1

    def nearest(texts: Sequence[str]) -> list[int]:
        rows = features.transform(texts)
        blocks = (rows[start : start + _BLOCK] @ known for start in range(0, len(texts), _BLOCK))
        return [int(place) for block in blocks for place in np.asarray(block.argmax(axis=1)).ravel()]

    return nearest


def tfidf_regression() -> Any:
    """Return logistic regression on TF-IDF of words and pairs of words, a pipeline of scikit-learn."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline

    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=MOST_FEATURES)
    return Pipeline([("features", features), ("classifier", LogisticRegression(C=10.0, max_iter=300))])


def word_by_word(pairs: Sequence[tuple[str, str]]) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that replaces each word by the one that stands most often in the translations of its sentences.

    The lexicon has for each source word the target word with the largest Dice coefficient; other words are copied.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    sides = [CountVectorizer(binary=True, token_pattern=r"\w+|[^\w\s]", dtype=np.float32) for _ in range(2)]
    source, target = (side.fit_transform(texts) for side, texts in zip(sides, zip(*pairs, strict=True), strict=True))
    together = (source.T @ target).tocsr()
    totals = np.asarray(source.sum(0))[0], np.asarray(target.sum(0))[0]
    words = sides[1].get_feature_names_out()
    lexicon = {}
    for word, row in sides[0].vocabulary_.items():
        part = together[row]
        if part.nnz:
            dice = part.data / (totals[0][row] + totals[1][part.indices])
            lexicon[word] = str(words[part.indices[dice.argmax()]])
    tokens = sides[0].build_tokenizer()
    return lambda texts: [" ".join(lexicon.get(word.lower(), word) for word in tokens(text)) for text in texts]
