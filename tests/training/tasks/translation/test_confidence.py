"""Tests of the confidence in translations and its fit."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.translation_robustness import read_phrases
from models.store import load_bundle
from models.tasks.translation import Translator
from models.tasks.translation_confidence import SIGNALS
from training.bundling.bundle import WrittenBundle
from training.tasks.translation.confidence import (
    expected_calibration_error,
    fitted_confidence,
    noisy_pairs,
    rated_translations,
)
from training.tasks.translation.reading import split_pairs, template_pairs
from training.tasks.translation.settings import PairSettings, TranslationRecipe


def test_the_calibration_error_is_that_of_bins_computed_by_hand() -> None:
    confidences = np.array([0.95, 0.95, 0.55, 0.55, 0.55, 0.55])
    right = np.array([True, False, True, True, False, False])
    assert expected_calibration_error(confidences, right) == pytest.approx((2 * 0.45 + 4 * 0.05) / 6)
    assert expected_calibration_error(np.array([1.0, 0.0]), np.array([True, False])) == 0


def test_noise_has_itself_as_its_reference() -> None:
    pairs = [(f"Der Hund Nummer {place} läuft.", f"Dog number {place} runs.") for place in range(64)]
    found = noisy_pairs(pairs)
    assert len(found) == 8 + 8 + 4 + 4 + 4 + 4
    assert found == noisy_pairs(pairs)
    assert all(source == target for source, target in found[20:])
    assert all(source.islower() for source, _ in found[:8])
    assert not any(source.endswith(".") or target.endswith(".") for source, target in found[8:16])
    invented = [source for source, _ in found[28:]]
    assert all(text.endswith(".") and text not in dict(pairs) for text in invented)
    assert [len(text.split()) > 5 for text in invented] == [True, False, False, False], "a quarter are joined"


def test_long_sentences_are_joined_in_both_languages() -> None:
    pairs = [(f"Der Hund Nummer {place} läuft.", f"Dog number {place} runs.") for place in range(64)]
    for source, target in noisy_pairs(pairs)[16:20]:
        link = "; " if ";" in source else ", "
        parts = [
            (one + ".", other + ".")
            for one, other in zip(source[:-1].split(link), target[:-1].split(link), strict=True)
        ]
        assert len(parts) > 1
        assert set(parts) <= set(pairs)
        assert 100 <= len(source) + 2 <= 700


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
    assert found.threshold == 0.5
    assert found.precision > 0.5, "below it, more translations are poor than not"
    assert found.recall > 0.5
    rated = rated_translations(model, mixed)
    below = [found.probability(dict(zip(SIGNALS, row, strict=True))) for row in rated.signals[rated.poor]]
    above = [found.probability(dict(zip(SIGNALS, row, strict=True))) for row in rated.signals[~rated.poor]]
    assert np.mean(below) < np.mean(above)


def test_phrases_of_the_fit_are_not_those_of_the_benchmark(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("Der Hund bellt.\tThe dog barks.\n", encoding="utf-8")
    files = {"train": "pairs.tsv", "dev": "pairs.tsv"}
    data = PairSettings.model_validate({"files": files, "source": "de", "target": "en", "also": {"everyday-de-en": 14}})
    found = {source.rstrip(".!?").lower() for source, _ in template_pairs(data, tmp_path, 125)}
    assert len(found) > 100
    assert not found & {phrase.rstrip(".!?").lower() for phrase in read_phrases()}
    assert template_pairs(data.model_copy(update={"also": {}}), tmp_path, 125) == []
