"""Tests of the confidence in translations, its threshold and its fit."""

from pathlib import Path

import numpy as np
import pytest

from models.store import load_bundle
from models.tasks.translation import Translator
from training.bundling.bundle import WrittenBundle
from training.tasks.translation.confidence import (
    chosen_threshold,
    expected_calibration_error,
    fitted_confidence,
    noisy_pairs,
    rated_translations,
)
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import TranslationRecipe


def test_the_highest_threshold_that_is_precise_is_chosen() -> None:
    poor = np.array([True] * 20 + [False] * 25 + [True] * 5 + [False] * 50)
    found = chosen_threshold(np.arange(100) / 100, poor)
    assert found is not None
    # Of the first 45, 20 are poor, and of the first 62, 25; of the first 63, 25 are too few.
    assert (found.confidence, found.precision, found.recall) == (0.615, 0.4032, 1.0)


def test_the_order_of_texts_does_not_matter() -> None:
    generator = np.random.default_rng(1)
    confidences = generator.random(500)
    poor = generator.random(500) < np.where(confidences < 0.2, 0.7, 0.05)
    order = generator.permutation(500)
    assert chosen_threshold(confidences, poor) == chosen_threshold(confidences[order], poor[order])


def test_precision_and_recall_are_those_of_the_threshold() -> None:
    generator = np.random.default_rng(2)
    confidences = np.round(generator.random(1000), 2)  # with equal ones
    poor = generator.random(1000) < np.where(confidences < 0.2, 0.7, 0.05)
    found = chosen_threshold(confidences, poor)
    assert found is not None
    below = confidences < found.confidence
    assert found.precision == pytest.approx(poor[below].mean(), abs=1e-4)
    assert found.recall == pytest.approx(poor[below].sum() / poor.sum(), abs=1e-4)
    assert found.precision >= 0.4


def test_without_a_precise_threshold_there_is_none() -> None:
    assert chosen_threshold(np.arange(100) / 100, np.zeros(100, bool)) is None
    assert chosen_threshold(np.arange(19) / 100, np.ones(19, bool)) is None


def test_where_all_are_poor_all_are_below() -> None:
    found = chosen_threshold(np.full(30, 0.2), np.ones(30, bool))
    assert found is not None
    assert 0.2 < found.confidence < 1
    assert (found.precision, found.recall) == (1.0, 1.0)


def test_the_calibration_error_is_that_of_bins_computed_by_hand() -> None:
    confidences = np.array([0.95, 0.95, 0.55, 0.55, 0.55, 0.55])
    right = np.array([True, False, True, True, False, False])
    assert expected_calibration_error(confidences, right) == pytest.approx((2 * 0.45 + 4 * 0.05) / 6)
    assert expected_calibration_error(np.array([1.0, 0.0]), np.array([True, False])) == 0


def test_noise_has_itself_as_its_reference() -> None:
    pairs = [(f"Der Hund Nummer {place} läuft.", f"Dog number {place} runs.") for place in range(64)]
    found = noisy_pairs(pairs)
    assert len(found) == 8 + 8 + 4 + 4 + 4
    assert found == noisy_pairs(pairs)
    assert all(source == target for source, target in found[16:])
    assert all(source.islower() for source, _ in found[:8])
    assert not any(source.endswith(".") or target.endswith(".") for source, target in found[8:16])
    invented = [source for source, _ in found[24:]]
    assert all(len(text.split()) == 5 and text.endswith(".") and text not in dict(pairs) for text in invented)


def test_a_bundle_is_rated_on_its_own_translations(
    pairs_export: WrittenBundle, pairs_recipe: TranslationRecipe, tiny_data_dir: Path
) -> None:
    model = load_bundle(pairs_export.path)
    assert isinstance(model, Translator)
    pairs = split_pairs(pairs_recipe.data, "dev", tiny_data_dir)
    wrong = [(source, "##") for source, _ in pairs]
    rated = rated_translations(model, [(" ", ""), *pairs, *wrong])
    assert len(rated.poor) == 2 * len(pairs), "a text without words is left out"
    assert not rated.poor[: len(pairs)].any(), "it has learnt all of them"
    assert rated.poor[len(pairs) :].all()
    assert np.array_equal(rated.signals[: len(pairs)], rated.signals[len(pairs) :])
    assert fitted_confidence(model, wrong) is None, "none is acceptable"


def test_a_confidence_fits_the_frequencies(
    pairs_export: WrittenBundle, pairs_recipe: TranslationRecipe, tiny_data_dir: Path
) -> None:
    model = load_bundle(pairs_export.path)
    assert isinstance(model, Translator)
    pairs = split_pairs(pairs_recipe.data, "dev", tiny_data_dir)
    # Of short texts all are acceptable, of long ones none.
    mixed = [(one[0], one[1]) if len(one[0]) < 25 else (one[0], "##") for one in pairs * 20]
    found = fitted_confidence(model, mixed)
    assert found is not None
    assert found.sentences > len(mixed)
    assert found.auroc > 0.8
    assert found.calibration_error < 0.15
    rated = rated_translations(model, mixed)
    below = [found.probability(dict(zip(found.signals, row, strict=True))) for row in rated.signals[rated.poor]]
    above = [found.probability(dict(zip(found.signals, row, strict=True))) for row in rated.signals[~rated.poor]]
    assert np.mean(below) < np.mean(above)
