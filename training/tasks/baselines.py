"""Baselines: what simple methods reach on the same data, in seconds, to compare a training with."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Labels",
    "frequent_class",
    "linear_classifier",
    "linear_probe",
    "micro_f1",
    "nearest_text",
    "tfidf_regression",
    "word_by_word",
]

_MOST_FEATURES = 20_000
"""The most frequent words and pairs of words that a linear classifier has a weight for."""

_PROBE_C = 0.1
"""Inverse strength of the penalty on weights for vectors of an encoder."""

Labels = Sequence[tuple[str, ...]]
"""The classes of each text."""


def frequent_class(train: Labels, count: int) -> Labels:
    """Return the most frequent classes of the training examples, `count` times."""
    return [Counter(train).most_common(1)[0][0]] * count


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
    from sklearn.neighbors import NearestNeighbors

    features = TfidfVectorizer(sublinear_tf=True)
    found = NearestNeighbors(n_neighbors=1, metric="cosine").fit(features.fit_transform(train))
    return lambda texts: found.kneighbors(features.transform(texts), return_distance=False)[:, 0].tolist()


def tfidf_regression() -> Any:
    """Return logistic regression on TF-IDF of words and pairs of words, a pipeline of scikit-learn."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline

    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=_MOST_FEATURES)
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
