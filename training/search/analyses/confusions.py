"""Confusions of classes by a classifier.

Shapes: `N` examples, `C` classes.
"""

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from training.search.analyses.tables import Rows
from training.tasks.ranked_classes import RankedClasses

__all__ = ["class_rows", "confusion_rows", "wanting_rows"]


def confusion_rows(ranked: RankedClasses, labels: Sequence[Sequence[int]], names: Sequence[str], count: int) -> Rows:
    """Return the pairs of a true and a wrong class that are confused most often.

    An example counts where its most probable class is none of its own; one of several classes counts for each.
    """
    predicted = ranked.best.tolist()
    found: Counter[tuple[int, int]] = Counter()
    sure: dict[tuple[int, int], float] = {}
    totals = Counter(label for own in labels for label in own)
    for row, (best, own) in enumerate(zip(predicted, labels, strict=True)):
        for label in own if best not in own else ():
            found[label, best] += 1
            sure[label, best] = sure.get((label, best), 0.0) + float(ranked.confidences[row])
    rows = Rows(["class", "taken for", "times", "of", "mean probability"])
    for (label, best), times in sorted(found.items(), key=lambda each: (-each[1], each[0]))[:count]:
        mean = sure[label, best] / times
        rows.add([names[label], names[best], times, totals[label], mean])
    return rows


def class_rows(ranked: RankedClasses, labels: Sequence[Sequence[int]], names: Sequence[str], count: int) -> Rows:
    """Return precision, recall and F1 of the classes with the lowest F1, by the most probable class."""
    table = Rows(["class", "F1", "precision", "recall", "examples"])
    for row in _by_f1(ranked, labels, names)[:count]:
        table.add(row)
    return table


def wanting_rows(
    ranked: RankedClasses,
    labels: Sequence[Sequence[int]],
    names: Sequence[str],
    training: Mapping[str, int],
    count: int,
) -> Rows:
    """Return the classes that more training examples are most likely to help.

    These are classes whose F1 is below the mean and that have at most as many training examples as half of the classes,
    those with the most errors first. `training` is the number of training examples of each class.
    """
    rows = _by_f1(ranked, labels, names)
    mean, usual = statistics.fmean(f1 for _, f1, *_ in rows), statistics.median(training.values())
    table = Rows(["class", "training examples", "F1", "missed", "examples"])
    found = [
        (name, training.get(name, 0), f1, round((1 - recall) * examples), examples)
        for name, f1, _, recall, examples in rows
        if f1 < mean and training.get(name, 0) <= usual
    ]
    for row in sorted(found, key=lambda row: (-row[3], row[1]))[:count]:
        table.add(row)
    return table


def _by_f1(
    ranked: RankedClasses, labels: Sequence[Sequence[int]], names: Sequence[str]
) -> list[tuple[str, float, float, float, int]]:
    """Return name, F1, precision, recall and number of examples of the classes there are, the lowest F1 first."""
    from sklearn.metrics import precision_recall_fscore_support  # with scipy, which takes seconds

    predicted = ranked.best.tolist()
    truth, guess = (_indicators(each, len(names)) for each in (labels, [(each,) for each in predicted]))
    precision, recall, f1, examples = precision_recall_fscore_support(truth, guess, zero_division=0)
    rows = zip(f1.tolist(), names, precision.tolist(), recall.tolist(), examples.tolist(), strict=True)
    known = (np.asarray((truth + guess).sum(0))[0] > 0).tolist()
    return [(name, score, *others) for score, name, *others in sorted(itertools.compress(rows, known))]


def _indicators(classes: Sequence[Sequence[int]], count: int) -> Any:
    """Return a sparse matrix `[N, C]` with 1 for each class of an example."""
    from scipy.sparse import csr_matrix

    places = np.cumsum([0, *map(len, classes)])
    columns = [label for own in classes for label in own]
    return csr_matrix((np.ones(len(columns), np.int64), columns, places), shape=(len(classes), count))
