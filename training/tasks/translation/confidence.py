"""The confidence in translations, fitted on the validation split and on noise.

Shapes: `N` texts, `F` signals.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from models.decoding.sequence_to_sequence import BATCH_SOURCES
from models.tasks.translation import TranslationQuery, Translator
from models.tasks.translation_confidence import FARTHEST, SIGNALS, Confidence, Signal
from training.tasks.translation.reading import split_pairs, template_pairs
from training.tasks.translation.settings import PairSettings

__all__ = [
    "POOR_CHRF",
    "Rated",
    "expected_calibration_error",
    "fitted_confidence",
    "is_poor",
    "joined_pairs",
    "noisy_pairs",
    "rated_translations",
    "recipe_confidence",
]

POOR_CHRF = 30.0
"""A translation whose chrF to its reference is below this counts as poor."""
_THRESHOLD = 0.5
"""Confidence below which a translation is more likely to be poor than not."""
_FEWEST = 20
"""Poor translations, and others, that are needed to fit a confidence."""
_MOST_PAIRS = 5000
"""Pairs of the validation split that are translated."""
_PAIRS_PER_PHRASE = 32
_FOLDS = 5
_BINS = 10
_JOINED_CHARACTERS, _JOINED_SENTENCES = (100, 600), 30
"""Least number of characters of joined sentences, which is drawn, and most sentences; a contract's have some 400."""
_LINKS = ("; ", ", ")
_FITTED = tuple(name for name in SIGNALS if name != "other_language")
"""The signals of a fit; `changed_other_language` holds better than the other in languages that were not fitted."""
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

    A sixteenth are sentences of up to 600 characters, several joined by semicolons or commas. Noise has itself as its
    reference, since nothing better can be done than to copy it: targets instead of sources, random letters, and sources
    in an invented language, with other vowels for vowels and other consonants for consonants, a quarter of them joined;
    a sixteenth each.
    """
    generator = random.Random(seed)
    many, some = max(1, len(pairs) // 8), max(1, len(pairs) // 16)
    lower = [(source.lower(), target) for source, target in generator.choices(pairs, k=many)]
    bare = [(source.rstrip(".!?"), target.rstrip(".!?")) for source, target in generator.choices(pairs, k=many)]
    targets = [target for _, target in generator.choices(pairs, k=some)]
    letters = ["".join(generator.choices(_VOWELS[:6] + _CONSONANTS, k=generator.randint(4, 12))) for _ in range(some)]
    long = [_joined(pairs, generator) for _ in range(some + some // 4)]
    long, unread = long[:some], [*long[some:], *generator.choices(pairs, k=some - some // 4)]
    invented = [_invented(source, generator) for source, _ in unread]
    return [*lower, *bare, *long, *((text, text) for text in (*targets, *letters, *invented))]


def joined_pairs(pairs: Pairs, count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Return sentences of some 100 to 600 characters, each of several pairs joined by semicolons or commas."""
    generator = random.Random(seed)
    return [_joined(pairs, generator) for _ in range(count)]


def _joined(pairs: Pairs, generator: random.Random) -> tuple[str, str]:
    """Return pairs that are joined to a single sentence of a drawn length."""
    length, link = generator.randint(*_JOINED_CHARACTERS), generator.choice(_LINKS)
    bare: list[tuple[str, str]] = []
    for source, target in generator.choices(pairs, k=_JOINED_SENTENCES):
        if sum(len(text) for text, _ in bare) < length:
            bare.append((source.rstrip(".!?"), target.rstrip(".!?")))
    return link.join(source for source, _ in bare) + ".", link.join(target for _, target in bare) + "."


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
    """Return the signals of the translations of texts, beam size 5.

    Texts without words to translate, or with more tokens than the model reads in a sentence, are left out.

    `poor_translation` returns whether a translation is poor, by the second text of its pair.
    """
    queries = [model.query(source, truncate=True) for source, _ in pairs]
    outputs = iter(model.decoder.search([part for query in queries for part in query.parts()], BATCH_SOURCES))
    signals, confidences, poor = [], [], []
    for query, (_, reference) in zip(queries, pairs, strict=True):
        assert isinstance(query, TranslationQuery)
        hypotheses = [next(outputs) for _ in query.parts()]
        if hypotheses and not query.truncated:
            result = model.result(query, hypotheses)
            found = model.sentence_signals(query, hypotheses)
            signals.append(min(found, key=lambda each: each["mean_log_probability"]))
            confidences.append(1.0 if result.confidence is None else result.confidence)
            poor.append(poor_translation(result.translations[0].text, reference))
    table = np.array([[each[name] for name in SIGNALS] for each in signals]).reshape(len(signals), len(SIGNALS))
    return Rated(table, table[:, SIGNALS.index("mean_log_probability")], np.array(confidences), np.array(poor, bool))


def recipe_confidence(model: Translator, data: PairSettings, data_dir: Path) -> Confidence | None:
    """Return the confidence fitted on the validation split of a recipe, and on phrases of its corpora of templates.

    A validation split has few single words and greetings, whose confidence would be too low.
    """
    pairs = split_pairs(data, "dev", data_dir)
    return fitted_confidence(model, pairs, phrases=template_pairs(data, data_dir, len(pairs) // _PAIRS_PER_PHRASE))


def fitted_confidence(
    model: Translator, pairs: Pairs, seed: int = 1, *, phrases: Pairs = (), fitted_on: str = "validation split"
) -> Confidence | None:
    """Return the confidence in a bundle's translations, by those of these pairs and of `noisy_pairs`.

    Further `phrases` are in the fit alone, of which precision and recall do not tell. `fitted_on` describes the pairs.
    None where fewer than 20 of the translations are poor, or fewer than 20 are not.
    """
    chosen = list(pairs) if len(pairs) <= _MOST_PAIRS else random.Random(seed).sample(pairs, _MOST_PAIRS)
    plain = rated_translations(model, chosen)
    noise = rated_translations(model, [*noisy_pairs(chosen, seed), *phrases])
    poor = np.concatenate([plain.poor, noise.poor])
    if min(poor.sum(), (~poor).sum()) < _FEWEST:
        return None
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    found, good = np.concatenate([plain.signals, noise.signals]), ~poor
    signals = found[:, [SIGNALS.index(name) for name in _FITTED]]
    mean, deviation = signals.mean(axis=0), signals.std(axis=0)
    deviation = np.where(deviation > 1e-6, deviation, 1.0)
    table = np.clip((signals - mean) / deviation, -FARTHEST, FARTHEST)
    regression = LogisticRegression(max_iter=1000)
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    held_out = cross_val_predict(regression, table, good, cv=folds, method="predict_proba")[:, 1]
    held_out *= 1 - found[:, SIGNALS.index("repetition")]
    regression.fit(table, good)
    low = held_out[: len(plain.poor)] < _THRESHOLD
    low_and_poor = int((low & plain.poor).sum())
    return Confidence(
        signals={
            name: Signal(mean=round(float(a), 6), deviation=round(float(b), 6), weight=round(float(c), 6))
            for name, a, b, c in zip(_FITTED, mean, deviation, regression.coef_[0], strict=True)
        },
        intercept=round(float(regression.intercept_[0]), 6),
        poor_chrf=POOR_CHRF,
        threshold=_THRESHOLD,
        precision=round(low_and_poor / max(1, int(low.sum())), 4),
        recall=round(low_and_poor / max(1, int(plain.poor.sum())), 4),
        auroc=round(float(roc_auc_score(good, held_out)), 4),
        calibration_error=round(expected_calibration_error(held_out, good), 4),
        sentences=len(good),
        fitted_on=fitted_on,
    )


def expected_calibration_error(confidences: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Return the mean distance of confidence and frequency over ten bins of equal width (Guo et al. 2017, eq. 3).

    `confidences` `[N]` in [0, 1], `right` `[N]`.
    """
    bins = np.minimum((confidences * _BINS).astype(int), _BINS - 1)
    sums = [np.abs(confidences[bins == each].sum() - right[bins == each].sum()) for each in np.unique(bins)]
    return float(sum(sums) / len(confidences))
