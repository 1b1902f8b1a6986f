"""Zero-shot classification by a classifier of pairs of premise and hypothesis, as `ZeroShotClassificationPipeline` of
transformers computes it: each candidate label makes a hypothesis, and its entailment by the text is the label's score.

Shapes: `L` candidate labels, `C` classes of the classifier.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from models.backend import Array
from models.errors import QueryError
from models.operations.classification import MOST_CANDIDATES
from models.tasks.labels import Label
from models.tasks.model import SinglePart
from models.text.encoding import EncodedText, TokenPair
from models.text.limits import several

__all__ = ["NORMALIZERS", "Entailment", "HypothesisPart", "ZeroShot", "ZeroShotQuery", "hypotheses_of"]

NORMALIZERS = "normalizers"
"""Output `[B]` of graphs of classifiers of premise and hypothesis: added to the log-probability of a class it gives the
score before the softmax, which zero-shot classification needs."""


@dataclass(frozen=True, slots=True)
class Entailment:
    """The classes of a classifier that say whether a text entails a hypothesis."""

    entailment: int
    """Number of the first class whose name begins with `entail`, in capitals or not."""
    contradiction: int
    """The first class, or the last where the first is entailment: transformers does not read its name."""

    @classmethod
    def of(cls, labels: Sequence[str]) -> Self | None:
        """Return the classes, None where no name begins with `entail`."""
        found = next((number for number, label in enumerate(labels) if label.lower().startswith("entail")), None)
        return None if found is None else cls(found, 0 if found else len(labels) - 1)


@dataclass(frozen=True, slots=True)
class ZeroShot:
    """A text and its candidate labels, most probable first; in the order of the request where equally probable."""

    text: str
    """The text as it was given."""
    labels: tuple[Label, ...]
    """The candidates with their probabilities."""
    truncated: int | None = None
    """Tokens of the text that `truncate` left out, an estimate for a very long text; None where it was not cut. For
    labels of different lengths the largest number."""


@dataclass(frozen=True, slots=True)
class HypothesisPart(SinglePart):
    """A text and the hypothesis of one label. Its output is the scores `[C]` of the classes, before any softmax."""

    pair: TokenPair

    @property
    def encoded(self) -> EncodedText:
        """The tokens of the pair."""
        return self.pair.joined()

    @property
    def length(self) -> int:
        return len(self.pair)

    @property
    def result_items(self) -> int:
        """One label."""
        return 1


@dataclass(frozen=True, slots=True)
class ZeroShotQuery:
    """A checked and tokenized text with its candidate labels."""

    text: str
    labels: tuple[str, ...]
    multi_label: bool
    pairs: tuple[TokenPair, ...]
    """The text with the hypothesis of each label."""

    @property
    def result_items(self) -> int:
        """Number of labels."""
        return len(self.labels)

    def parts(self) -> tuple[HypothesisPart, ...]:
        """Return a part for each label."""
        return tuple(map(HypothesisPart, self.pairs))

    def result(self, scores: Sequence[Array], classes: Entailment) -> ZeroShot:
        """Return the probabilities of the labels from the scores `[L, C]` of their hypotheses."""
        entailment, contradiction = (
            np.array([row[number] for row in scores], np.float64)
            for number in (classes.entailment, classes.contradiction)
        )
        if self.multi_label or len(self.labels) == 1:
            values = -np.logaddexp(0, contradiction - entailment)
        else:
            values = entailment - np.logaddexp.reduce(entailment)
        order = np.argsort(-values, kind="stable").tolist()
        labels = tuple(Label(self.labels[place], float(values[place])) for place in order)
        truncated = max((each.truncated or 0 for each in self.pairs), default=0)
        return ZeroShot(self.text, labels, truncated or None)


def hypotheses_of(labels: Sequence[str], template: str) -> list[str]:
    """Return the hypothesis of each label: the template with the label in place of `{}`.

    Raises `QueryError` without labels, for more than `MOST_CANDIDATES`, and for a template without `{}` or with other
    braces, which Python's `str.format` reads in other ways.
    """
    if not several(labels):
        raise QueryError("labels are missing: the candidates, of which the most probable are returned first")
    if len(labels) > MOST_CANDIDATES:
        raise QueryError(f"labels may be at most {MOST_CANDIDATES}, not {len(labels)}")
    before, found, after = template.partition("{}")
    if not found or any(brace in part for part in (before, after) for brace in "{}"):
        raise QueryError("template must have {} once, where the label goes, and no other braces")
    return [before + label + after for label in labels]
