"""Calibration examples of sets of translations: the first acceptable translation of a sentence.

Sets and their guarantee are those of `models.tasks.translation_sets`.
"""

import copy
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from models.decoding.beam_search import SearchOptions
from models.tasks.prediction_sets import Penalty, Rows, SetPredictor
from models.tasks.translation import Translator
from models.tasks.translation_confidence import Confidence
from models.tasks.translation_results import Translation
from models.tasks.translation_sets import TranslationSets, first_acceptable
from training.tasks.task import Refitted
from training.tasks.translation.confidence import Pairs, is_poor

__all__ = ["BEAM_SIZE", "FILE", "Rated", "confidence_and_sets", "rated_beams", "set_rows", "with_confidence"]

FILE = "translation_scores.bin"
"""File of the calibration examples in a bundle."""
BEAM_SIZE = 5
"""Hypotheses of the search, which is the default of a request."""
_FEWEST, _MOST = 100, 5000
"""Sentences that are needed, and that are translated at most."""

Rated = Sequence[tuple[float, bool]]
"""The confidence in each translation of a sentence, and whether it is acceptable."""


def confidence_and_sets(model: Translator, confidence: Confidence | None, pairs: Pairs, seed: int = 1) -> Refitted:
    """Return the fields `confidence` and `sets` of a bundle's section and their files.

    `pairs` are sentences with their translations that the model was not trained on; of more than 5,000, as many are
    drawn. There are no sets without a confidence, nor of fewer than 100 single sentences that the model reads.
    """
    if confidence is None:
        return Refitted({"confidence": None, "sets": None})
    chosen = list(pairs) if len(pairs) <= _MOST else random.Random(seed).sample(pairs, _MOST)
    rows = set_rows([each for _, each in rated_beams(with_confidence(model, confidence), chosen)])
    fields: dict[str, object] = {"confidence": confidence.model_dump(), "sets": None}
    if len(rows) < _FEWEST:
        return Refitted(fields)
    section = TranslationSets(file=FILE, penalty=Penalty(), beam_size=BEAM_SIZE, **TranslationSets.fields_of(rows))
    return Refitted({**fields, "sets": section.model_dump()}, {FILE: SetPredictor.written(rows)})


def with_confidence(model: Translator, confidence: Confidence) -> Translator:
    """Return a loaded model with another confidence."""
    changed = copy.copy(model)
    changed.config = model.config.model_copy(update={"confidence": confidence})
    return changed


def rated_beams(model: Translator, pairs: Pairs) -> list[tuple[Translation, Rated]]:
    """Return the translations of texts with what `set_rows` needs.

    Texts of several sentences, without words to translate, or with more tokens than the model reads are left out.
    """
    options, sources = SearchOptions(n_best=BEAM_SIZE), [source for source, _ in pairs]
    results = model.translate(sources, BEAM_SIZE, options=options, truncate=True, confidences=True)
    found: list[tuple[Translation, Rated]] = []
    for result, (_, reference) in zip(results, pairs, strict=True):
        sentences: list[Any] = [each.sentences for each in result.translations]
        if len(sentences[0]) == 1 and not result.truncated:
            poor = [is_poor(each.text, reference) for each in result.translations]
            confidences = [each.confidence for (each,) in sentences]
            found.append((result, [(one, not bad) for one, bad in zip(confidences, poor, strict=True)]))
    return found


def set_rows(rated: Sequence[Rated]) -> Rows:
    """Return class 0, rank, probability of those before it and own probability `[N, 4]` of first acceptable ones.

    The own probability is 0 where no translation of a sentence is acceptable.
    """
    return np.array([_row(each) for each in rated]).reshape(len(rated), 4)


def _row(rated: Rated) -> tuple[float, float, float, float]:
    own = first_acceptable([confidence for confidence, _ in rated])
    place = next((place for place, (_, acceptable) in enumerate(rated) if acceptable), None)
    if place is None:
        return 0.0, len(rated) + 1.0, float(own.sum()), 0.0
    return 0.0, place + 1.0, float(own[:place].sum()), float(own[place])
