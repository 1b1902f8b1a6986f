"""Quality of predicted tags: precision, recall and F1 of entities, as seqeval computes them by default.

An entity is right where its type, its first and its last word are. Tags of any scheme of `B`, `I`, `E`, `S` and `O`
are accepted: an `I` after a tag of another type begins an entity.

Source: `seqeval.metrics.sequence_labeling.get_entities` of seqeval 1.2.2, `mode` and `scheme` left out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.tasks.examples import Examples, f1

__all__ = ["Counts", "TaggingQuality", "entities", "measured_tags"]

Tags = Sequence[str]
Entity = tuple[str, int, int]
"""Type, first and last word."""

_BEGINS = {("E", "E"), ("E", "I"), ("S", "E"), ("S", "I"), ("O", "E"), ("O", "I")}
"""Prefixes of two adjacent tags of one type of which the second begins an entity, other than `B` and `S`."""


def entities(tags: Tags) -> list[Entity]:
    """Return the entities of a sentence, in their order."""
    found: list[Entity] = []
    before, kind, first = "O", "", 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, own = tag[0], tag[1:].split("-", maxsplit=1)[-1] or "_"
        other = kind != own
        if (
            before in ("E", "S")
            or (before in ("B", "I") and prefix in ("B", "S", "O"))
            or (before not in "O." and other)
        ):
            found.append((kind, first, place - 1))
        if prefix in ("B", "S") or (before, prefix) in _BEGINS or (prefix not in "O." and other):
            first = place
        before, kind = prefix, own
    return found


@dataclass(frozen=True, slots=True)
class Counts:
    """Right, predicted and true entities."""

    right: int
    predicted: int
    true: int

    @property
    def precision(self) -> float:
        """Fraction of the predicted entities that are right, 0 without any."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Fraction of the true entities that were predicted, 0 without any."""
        return self.right / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, 0 where both are."""
        return 2 * self.right / (self.predicted + self.true) if self.right else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggingQuality:
    """Fractions in [0, 1]."""

    whole: Counts
    """Of entities of all types."""
    types: dict[str, Counts]
    """Of each type that is predicted or true."""
    accuracy: float
    """Words whose tag is right."""
    statistics: NDArray[np.float64]
    """Right, wrongly predicted and missed entities of each sentence, `[N, 3]`."""

    @property
    def value(self) -> float:
        """The metric that models are selected by."""
        return self.whole.f1

    def named(self) -> dict[str, float]:
        """Return the metrics by name, the one that models are selected by first."""
        whole = self.whole
        return {
            "F1": whole.f1,
            "precision": whole.precision,
            "recall": whole.recall,
            "token accuracy": self.accuracy,
        }

    def examples(self) -> Examples:
        """Return what each sentence adds to F1."""
        return Examples(self.statistics, f1)

    def lines(self) -> list[str]:
        """Return all metrics, and those of each type, as lines of text."""
        found = [f"{metric} {value:.4f}" for metric, value in self.named().items()]
        return found + [
            f"{kind}: F1 {counts.f1:.4f}, precision {counts.precision:.4f}, recall {counts.recall:.4f} of {counts.true}"
            for kind, counts in sorted(self.types.items())
        ]


def measured_tags(truth: Sequence[Tags], predicted: Sequence[Tags]) -> TaggingQuality:
    """Return the quality of the predicted tags of sentences; raises `ValueError` for other numbers of tags."""
    right, found, true = Counter[str](), Counter[str](), Counter[str]()
    rows, equal, words = [], 0, 0
    for tags, own in zip(truth, predicted, strict=True):
        equal += sum(one == other for one, other in zip(tags, own, strict=True))
        words += len(tags)
        expected, given = set(entities(tags)), set(entities(own))
        shared = expected & given
        rows.append((len(shared), len(given) - len(shared), len(expected) - len(shared)))
        for counter, some in ((right, shared), (found, given), (true, expected)):
            counter.update(kind for kind, _, _ in some)
    return TaggingQuality(
        whole=Counts(right.total(), found.total(), true.total()),
        types={kind: Counts(right[kind], found[kind], true[kind]) for kind in found.keys() | true.keys()},
        accuracy=equal / max(1, words),
        statistics=np.array(rows, np.float64).reshape(-1, 3),
    )
