"""Tests of the threshold of confidence."""

from pathlib import Path

import numpy as np
import pytest

from models.store import load_bundle
from models.tasks.translation import Translator
from training.bundling.bundle import WrittenBundle
from training.tasks.translation.confidence import calibrated_threshold, chosen_threshold
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import TranslationRecipe


def test_the_highest_threshold_that_is_precise_is_chosen() -> None:
    poor = np.array([True] * 20 + [False] * 25 + [True] * 5 + [False] * 50)
    found = chosen_threshold(np.arange(-100, 0) / 10, poor)
    assert found is not None
    # Of the first 45, 20 are poor, and of the first 62, 25; of the first 63, 25 are too few.
    assert (found.log_probability, found.precision, found.recall) == (-3.85, 0.4032, 1.0)


def test_the_order_of_texts_does_not_matter() -> None:
    generator = np.random.default_rng(1)
    confidences = -generator.random(500)
    poor = generator.random(500) < np.where(confidences < -0.8, 0.7, 0.05)
    order = generator.permutation(500)
    assert chosen_threshold(confidences, poor) == chosen_threshold(confidences[order], poor[order])


def test_precision_and_recall_are_those_of_the_threshold() -> None:
    generator = np.random.default_rng(2)
    confidences = np.round(-generator.random(1000), 2)  # with equal ones
    poor = generator.random(1000) < np.where(confidences < -0.8, 0.7, 0.05)
    found = chosen_threshold(confidences, poor)
    assert found is not None
    below = confidences < found.log_probability
    assert found.precision == pytest.approx(poor[below].mean(), abs=1e-4)
    assert found.recall == pytest.approx(poor[below].sum() / poor.sum(), abs=1e-4)
    assert found.precision >= 0.4


def test_without_a_precise_threshold_there_is_none() -> None:
    assert chosen_threshold(np.arange(-100, 0) / 10, np.zeros(100, bool)) is None
    assert chosen_threshold(np.arange(-19, 0) / 10, np.ones(19, bool)) is None


def test_where_all_are_poor_all_are_below() -> None:
    found = chosen_threshold(np.full(30, -2.0), np.ones(30, bool))
    assert found is not None
    assert -2.0 < found.log_probability < 0
    assert (found.precision, found.recall) == (1.0, 1.0)


def test_a_bundle_is_calibrated_on_its_own_translations(
    pairs_export: WrittenBundle, pairs_recipe: TranslationRecipe, tiny_data_dir: Path
) -> None:
    model = load_bundle(pairs_export.path)
    assert isinstance(model, Translator)
    pairs = split_pairs(pairs_recipe.data, "dev", tiny_data_dir)
    found = calibrated_threshold(model, [(" ", ""), *((source, "##") for source, _ in pairs)])
    assert found is not None
    assert (found["precision"], found["recall"], found["poor_chrf"]) == (1.0, 1.0, 30.0)
    assert calibrated_threshold(model, pairs) is None  # it has learnt all of them
