"""The confidence in translations, fitted on validation pairs of several domains and on noise.

Shapes: `N` texts, `F` signals.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from models.decoding.sequence_to_sequence import BATCH_SOURCES
from models.tasks.translation import TranslationQuery, Translator
from models.tasks.translation_confidence import FARTHEST, SIGNALS, Confidence, Signal

__all__ = [
    "POOR_CHRF",
    "Rated",
    "expected_calibration_error",
    "fitted_confidence",
    "is_poor",
    "noisy_pairs",
    "rated_translations",
]

POOR_CHRF = 30.0
"""A translation whose chrF to its reference is below this counts as poor."""
_THRESHOLD = 0.5
"""Confidence below which a translation is more likely to be poor than not."""
_FEWEST = 20
"""Poor translations, and others, that are needed to fit a confidence."""
_MOST_PAIRS = 3000
"""Pairs that are translated, of all domains together."""
_FOLDS = 5
_BINS = 10
_VOWELS = "aeiouyäöü"
_CONSONANTS = "bcdfghjklmnpqrstvwxz"

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Rated:
    """The signals of translations, and whether these are poor."""

    signals: NDArray[np.float64]
    """`[N, F]`, of the sentence of each text with the lowest mean log-probability."""
    log_probabilities: NDArray[np.float64]
    """That mean log-probability: `[N]`."""
    confidences: NDArray[np.float64]
    """The model's confidence in each text, 1 of a model without it: `[N]`."""
    poor: NDArray[np.bool_]
    """Whether the translation is poor: `[N]`."""


def noisy_pairs(pairs: Pairs, seed: int = 1) -> list[tuple[str, str]]:
    """Return changed pairs, an eighth of them each in lower case and without final punctuation, and texts of noise.

    Noise has itself as its reference, since nothing better can be done than to copy it: targets instead of sources,
    random letters, and sources in an invented language, with other vowels for vowels and other consonants for
    consonants; a sixteenth each.
    """
    generator = random.Random(seed)
    many, some = max(1, len(pairs) // 8), max(1, len(pairs) // 16)
    lower = [(source.lower(), target) for source, target in generator.choices(pairs, k=many)]
    bare = [(source.rstrip(".!?"), target.rstrip(".!?")) for source, target in generator.choices(pairs, k=many)]
    targets = [target for _, target in generator.choices(pairs, k=some)]
    letters = ["".join(generator.choices(_VOWELS[:6] + _CONSONANTS, k=generator.randint(4, 12))) for _ in range(some)]
    invented = [_invented(source, generator) for source, _ in generator.choices(pairs, k=some)]
    return [*lower, *bare, *((text, text) for text in (*targets, *letters, *invented))]


def _invented(text: str, generator: random.Random) -> str:
    """Return a text with each letter exchanged for another, vowels for vowels."""
    table: dict[str, str | int | None] = {}
    for letters in (_VOWELS, _CONSONANTS):
        others = "".join(generator.sample(letters, len(letters)))
        table |= dict(zip(letters + letters.upper(), others + others.upper(), strict=True))
    return text.translate(str.maketrans(table))


def is_poor(translation: str, reference: str) -> bool:
    return bool(sacrebleu.sentence_chrf(translation, [reference]).score < POOR_CHRF)


def rated_translations(
    model: Translator, pairs: Pairs, poor_translation: Callable[[str, str], bool] = is_poor
) -> Rated:
    """Return the signals of the translations of texts, beam size 5; texts without words to translate are left out.

    `poor_translation` returns whether a translation is poor, by the second text of its pair.
    """
    queries = [model.query(source, truncate=True) for source, _ in pairs]
    outputs = iter(model.decoder.search([part for query in queries for part in query.parts()], BATCH_SOURCES))
    signals, confidences, poor = [], [], []
    for query, (_, reference) in zip(queries, pairs, strict=True):
        hypotheses = [next(outputs) for _ in query.parts()]
        if hypotheses:
            result = model.result(query, hypotheses)
            assert isinstance(query, TranslationQuery)
            found = model.sentence_signals(query, hypotheses)
            signals.append(min(found, key=lambda each: each["mean_log_probability"]))
            confidences.append(1.0 if result.confidence is None else result.confidence)
            poor.append(poor_translation(result.translations[0].text, reference))
    table = np.array([[each[name] for name in SIGNALS] for each in signals]).reshape(len(signals), len(SIGNALS))
    return Rated(table, table[:, SIGNALS.index("mean_log_probability")], np.array(confidences), np.array(poor, bool))


def fitted_confidence(model: Translator, domains: Mapping[str, Pairs], seed: int = 1) -> Confidence | None:
    """Return the confidence in a bundle's translations, by those of each domain's pairs and of `noisy_pairs`.

    All domains count equally, whatever their sizes; changed pairs and noise are a fixed fraction in addition. None
    where fewer than 20 translations are poor, or fewer than 20 are not.
    """
    chosen = _drawn(domains, seed)
    plain = [rated_translations(model, pairs) for pairs in chosen.values()]
    noise = rated_translations(model, noisy_pairs([pair for pairs in chosen.values() for pair in pairs], seed))
    poor = np.concatenate([*(each.poor for each in plain), noise.poor])
    if min(poor.sum(), (~poor).sum()) < _FEWEST:
        return None
    signals, good = np.concatenate([*(each.signals for each in plain), noise.signals]), ~poor
    sizes = [len(each.poor) for each in plain]
    count = sum(sizes)
    weights = np.concatenate(
        [*(np.full(size, count / len(plain) / max(1, size)) for size in sizes), np.ones_like(noise.poor)]
    )
    model_of, held_out = _regression(signals, good, weights, seed)
    low = held_out[:count] < _THRESHOLD
    below, all_poor, found = (float(weights[:count][rows].sum()) for rows in (low, poor[:count], low & poor[:count]))
    from sklearn.metrics import roc_auc_score

    return Confidence(
        **model_of,
        poor_chrf=POOR_CHRF,
        threshold=_THRESHOLD,
        precision=round(found / below, 4) if below else 0.0,
        recall=round(found / all_poor, 4) if all_poor else 0.0,
        auroc=round(float(roc_auc_score(good, held_out, sample_weight=weights)), 4),
        calibration_error=round(expected_calibration_error(held_out, good, weights), 4),
        sentences=len(good),
        domains=dict(zip(chosen, sizes, strict=True)),
    )


def _drawn(domains: Mapping[str, Pairs], seed: int) -> dict[str, Pairs]:
    """Return the pairs of each domain that are translated, as many of each where all have so many."""
    most, generator = _MOST_PAIRS // max(1, len(domains)), random.Random(seed)
    return {
        name: list(pairs) if len(pairs) <= most else generator.sample(pairs, most)
        for name, pairs in domains.items()
        if pairs
    }


def _regression(
    signals: NDArray[np.float64], good: NDArray[np.bool_], weights: NDArray[np.float64], seed: int
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Return the fields of the logistic regression on signals `[N, F]`, and probabilities of rows held out, `[N]`."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    mean = np.average(signals, axis=0, weights=weights)
    deviation = np.sqrt(np.average((signals - mean) ** 2, axis=0, weights=weights))
    deviation = np.where(deviation > 1e-6, deviation, 1.0)
    table = np.clip((signals - mean) / deviation, -FARTHEST, FARTHEST)
    regression, held_out = LogisticRegression(max_iter=1000), np.zeros(len(good))
    for rows, others in StratifiedKFold(_FOLDS, shuffle=True, random_state=seed).split(table, good):
        regression.fit(table[rows], good[rows], sample_weight=weights[rows])
        held_out[others] = regression.predict_proba(table[others])[:, 1]
    regression.fit(table, good, sample_weight=weights)
    found = {
        name: Signal(mean=round(float(a), 6), deviation=round(float(b), 6), weight=round(float(c), 6))
        for name, a, b, c in zip(SIGNALS, mean, deviation, regression.coef_[0], strict=True)
    }
    return {"signals": found, "intercept": round(float(regression.intercept_[0]), 6)}, held_out


def expected_calibration_error(
    confidences: NDArray[np.float64], right: NDArray[np.bool_], weights: NDArray[np.float64] | None = None
) -> float:
    """Return the mean distance of confidence and frequency over ten bins of equal width (Guo et al. 2017, eq. 3).

    `confidences` `[N]` in [0, 1], `right` `[N]`, `weights` `[N]` of the examples, 1 each by default.
    """
    counts = np.ones(len(confidences)) if weights is None else weights
    bins = np.minimum((confidences * _BINS).astype(int), _BINS - 1)
    distances = np.bincount(bins, weights=counts * (confidences - right))
    return float(np.abs(distances).sum() / counts.sum())
