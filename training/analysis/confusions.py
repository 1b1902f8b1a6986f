"""Confusions of classes by a classifier.

Shapes: `N` examples, `C` classes.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from training.analysis.tables import Rows

__all__ = ["class_rows", "confusion_rows"]


def confusion_rows(
    probabilities: NDArray[np.float64], labels: Sequence[Sequence[int]], names: Sequence[str], count: int
) -> Rows:
    """The pairs of a true and a wrong class that are confused most often: `[N, C]`, N, C.

    An example counts where its most probable class is none of its own; one of several classes counts for each.
    """
    predicted = probabilities.argmax(1).tolist()
    found: Counter[tuple[int, int]] = Counter()
    sure: dict[tuple[int, int], float] = {}
    totals = Counter(label for own in labels for label in own)
    for row, (best, own) in enumerate(zip(predicted, labels, strict=True)):
        for label in own if best not in own else ():
            found[label, best] += 1
            sure[label, best] = sure.get((label, best), 0.0) + float(probabilities[row, best])
    rows = Rows(["class", "taken for", "times", "of", "mean probability"])
    for (label, best), times in sorted(found.items(), key=lambda each: (-each[1], each[0]))[:count]:
        mean = sure[label, best] / times
        rows.add([names[label], names[best], times, totals[label], mean])
    return rows


def class_rows(
    probabilities: NDArray[np.float64], labels: Sequence[Sequence[int]], names: Sequence[str], count: int
) -> Rows:
    """Precision, recall and F1 of the most probable class, for the classes with the lowest F1: `[N, C]`, N, C."""
    predicted = probabilities.argmax(1).tolist()
    said, true = Counter(predicted), Counter(label for own in labels for label in own)
    right = Counter(best for best, own in zip(predicted, labels, strict=True) if best in own)
    rows = []
    for index, name in enumerate(names):
        if not said[index] and not true[index]:
            continue
        precision, recall = right[index] / max(1, said[index]), right[index] / max(1, true[index])
        f1 = 2 * right[index] / (said[index] + true[index])
        rows.append((f1, name, precision, recall, true[index]))
    table = Rows(["class", "F1", "precision", "recall", "examples"])
    for f1, name, precision, recall, examples in sorted(rows)[:count]:
        table.add([name, f1, precision, recall, examples])
    return table
