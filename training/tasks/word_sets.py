"""Calibration examples of sets of next words: the word that follows a beginning of a validation text.

A text is one example, from a place that is drawn, so that examples are independent. Sets and their guarantee are those
of `models.tasks.word_sets`.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import QueryError, TextTooLongError
from models.operations.language import MOST_SET_WORDS, Unit
from models.tasks.prediction_sets import Penalty, Rows, SetPredictor
from models.tasks.word_sets import UnitSets
from training.tasks.task import Refitted

__all__ = ["FEWEST", "Followed", "Following", "refitted_sets", "word_sets"]

FEWEST = 100
"""Texts below which there are no sets."""
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Followed:
    """A beginning of a text, and what follows it."""

    context: str
    follows: Callable[[Any], bool]
    """Whether a candidate is what follows."""


@dataclass(frozen=True, slots=True)
class Following:
    """How examples of one unit of a model's next words are made and answered."""

    unit: Unit
    example: Callable[[Any, str, random.Random], Followed | None]
    """Returns an example of a text at a place that is drawn, None where nothing follows; may raise `QueryError`."""
    most_texts: int = 4000
    """Texts that are used, the first ones."""
    most_listed: int = MOST_SET_WORDS
    """Candidates of a set."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the model's next words."""

    def examples(self, model: Any, texts: Sequence[str]) -> Iterator[Followed]:
        """Yield an example of each text that the model reads, always the same."""
        generator, left = random.Random(0), self.most_texts
        for text in texts:
            if not left:
                return
            try:
                example = self.example(model, text, generator)
            except (QueryError, TextTooLongError):
                continue
            if example is not None:
                left -= 1
                yield example

    def listed(self, model: Any) -> int:
        """Return the number of candidates of a set."""
        most: int = model.most_words
        return min(self.most_listed, most)

    def candidates(self, model: Any, examples: Sequence[Followed]) -> Iterator[Sequence[Any]]:
        """Yield the candidates after each beginning of a text, most probable first."""
        for start in range(0, len(examples), _BATCH):
            contexts = [each.context for each in examples[start : start + _BATCH]]
            yield from (result.words for result in model.next_words(contexts, self.listed(model), **self.options))

    def rows(self, model: Any, examples: Sequence[Followed]) -> Rows:
        """Return class 0, rank, probability of the candidates before it and own probability `[N, 4]` of what follows.

        The own probability is 0 where it is not among the candidates.
        """
        return np.array([_row(*each) for each in zip(examples, self.candidates(model, examples), strict=True)])


def _row(example: Followed, words: Sequence[Any]) -> tuple[float, float, float, float]:
    before = 0.0
    for place, word in enumerate(words):
        if example.follows(word):
            return 0.0, place + 1.0, before, word.probability
        before += word.probability
    return 0.0, len(words) + 1.0, before, 0.0


def word_sets(
    model: Any, texts: Sequence[str], units: Sequence[Following]
) -> tuple[dict[str, object], dict[str, bytes]] | None:
    """Return the field `sets` of a bundle's section and its files, fitted on texts that the model was not trained on.

    None where there are fewer than `FEWEST` texts that the model reads.
    """
    sections: dict[str, object] = {}
    files: dict[str, bytes] = {}
    for each in units:
        examples = list(each.examples(model, texts))
        if len(examples) < FEWEST:
            continue
        rows, file = each.rows(model, examples), f"next_{each.unit}_scores.bin"
        section = UnitSets(file=file, penalty=Penalty(), listed=each.listed(model), **UnitSets.fields_of(rows))
        sections[each.unit], files[file] = section.model_dump(), SetPredictor.written(rows)
    return (sections, files) if sections else None


def refitted_sets(
    model: Any, validation: Callable[[], Sequence[str]] | None, texts: Path | None, units: Sequence[Following]
) -> Refitted:
    """Return the sets of a finished bundle; `texts` has a text on each line, in place of those of the validation split.

    `validation` returns these; it is None for an imported bundle. Raises `ValueError` where there are no texts, or too
    few.
    """
    if texts is not None:
        lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    elif validation is not None:
        lines = list(validation())
    else:
        raise ValueError("the bundle was imported: give texts, one on each line, by --texts")
    found = word_sets(model, lines, units)
    if found is None:
        raise ValueError(f"sets of next words need at least {FEWEST} texts that the model reads")
    sections, files = found
    return Refitted({"sets": sections}, files)
