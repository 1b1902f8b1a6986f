"""The threshold of confidence below which translations are likely to be poor, chosen on the validation split.

Shapes: `N` texts.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from models.decoding.sequence_to_sequence import BATCH_SOURCES
from models.tasks.translation import Translator

__all__ = ["POOR_CHRF", "Threshold", "calibrated_threshold", "chosen_threshold"]

POOR_CHRF = 30.0
"""A translation whose chrF to its reference is below this counts as poor."""
_PRECISION = 0.4
"""Fraction of the texts below the threshold whose translations must be poor: in the validation split of the bundled
German-English model 11 % are, and half of those below a threshold only where it finds 8 % of them."""
_FEWEST = 20
"""Texts that must be below a threshold for its precision to be trusted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Threshold:
    """A threshold of the mean log-probability of a token, with its precision and recall."""

    log_probability: float
    poor_chrf: float = POOR_CHRF
    precision: float
    recall: float


def chosen_threshold(confidences: NDArray[np.float64], poor: NDArray[np.bool_]) -> Threshold | None:
    """Return the highest threshold below which at least 40 % of the translations are poor.

    `confidences` `[N]` are mean log-probabilities of a token, `poor` `[N]` says which translations are poor. None where
    no threshold with 20 texts below it is that precise.
    """
    order = np.argsort(confidences, kind="stable")
    ranked, found = confidences[order], np.cumsum(poor[order])
    below = np.arange(1, len(order) + 1)
    possible = (below >= _FEWEST) & (found >= _PRECISION * below)
    possible[:-1] &= ranked[:-1] < ranked[1:]  # equal confidences are on one side of a threshold
    if not possible.any():
        return None
    last = int(np.flatnonzero(possible)[-1])
    above = ranked[last + 1] if last + 1 < len(ranked) else 0.0
    return Threshold(
        log_probability=round(float(ranked[last] + above) / 2, 4),
        precision=round(float(found[last] / below[last]), 4),
        recall=round(float(found[last] / poor.sum()), 4),
    )


def calibrated_threshold(model: Translator, pairs: Sequence[tuple[str, str]]) -> dict[str, object] | None:
    """Return the field `low_confidence` of a bundle's section, by its translations of these pairs with beam size 5."""
    queries = [model.query(source, truncate=True) for source, _ in pairs]
    outputs = iter(model.decoder.search([part for query in queries for part in query.parts()], BATCH_SOURCES))
    confidences, poor = [], []
    for query, (_, reference) in zip(queries, pairs, strict=True):
        best = [next(outputs)[:1] for _ in query.parts()]
        if best:
            text = model.result(query, best).translations[0].text
            confidences.append(min(hypothesis.mean_log_probability for (hypothesis,) in best))
            poor.append(sacrebleu.sentence_chrf(text, [reference]).score < POOR_CHRF)
    threshold = chosen_threshold(np.array(confidences), np.array(poor))
    return None if threshold is None else asdict(threshold)
