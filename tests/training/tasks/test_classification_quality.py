"""Tests of classification metrics by hand."""

import numpy as np
import pytest

from training.tasks.classification_quality import (
    ScopeThreshold,
    calibration_error,
    measure_several,
    measure_single,
    measured,
    out_of_scope_auroc,
    scope_threshold,
)
from training.tasks.ranked_classes import RankedClasses

THREE = RankedClasses.of(np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]]))


def test_one_class_each() -> None:
    found = measure_single(THREE, [0, 1, 2, 1])
    assert found.accuracy == found.micro_f1 == found.value == 0.75
    # F1 of the classes: 2/3 (one false alarm), 2/3 (one miss), 1.
    assert found.macro_f1 == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert found.top_5 == 1
    assert found.threshold is None
    # Four bins of one text each: gaps 0.3, 0.5, 0.2, 0.6.
    assert found.calibration_error == pytest.approx((0.3 + 0.5 + 0.2 + 0.6) / 4)


def test_several_classes() -> None:
    labels = [(0, 1), (0, 1), (2,), (1,)]
    found = measure_several(THREE, labels, threshold=0.4)
    # Predicted: {0}, {0, 1}, {2}, {1}: 5 right, 1 missed, none wrong.
    assert found.micro_f1 == pytest.approx(10 / 11)
    assert found.accuracy == 0.75
    assert found.value == found.micro_f1
    best = measure_several(THREE, labels)
    assert (best.threshold, best.micro_f1) == (0.35, found.micro_f1)  # the lowest of those that do as well


def test_classes_that_no_training_text_has_count_as_errors() -> None:
    """Classes 3 and 4 have no probability."""
    single = measure_single(THREE, [0, 1, 2, 3])
    assert single.accuracy == 0.5
    assert single.top_5 == 0.75
    # F1 of the classes: 2/3 (one false alarm), 0 (one miss, one false alarm), 1, and 0 of the unseen class.
    assert single.macro_f1 == pytest.approx((2 / 3 + 0 + 1 + 0) / 4)
    several = measure_several(THREE, [(0, 1), (0, 1), (2, 3), (4,)], threshold=0.4)
    # Predicted: {0}, {0, 1}, {2}, {1}: 4 right, 3 missed, 1 wrong.
    assert several.micro_f1 == pytest.approx(8 / 12)
    assert several.macro_f1 == pytest.approx((1 + 1 / 2 + 1 + 0 + 0) / 5)
    assert several.accuracy == 0.25
    assert several.top_5 == 0.75


def test_the_best_class_is_always_predicted() -> None:
    assert measure_several(THREE, [(0,), (0,), (2,), (1,)], threshold=0.95).micro_f1 == 1


def test_five_best_of_six() -> None:
    probabilities = np.array([[0.3, 0.25, 0.2, 0.15, 0.07, 0.03]] * 2)
    assert measure_single(RankedClasses.of(probabilities), [4, 5]).top_5 == 0.5


@pytest.mark.parametrize(("confidence", "right", "error"), [(1.0, True, 0.0), (1.0, False, 1.0), (0.25, False, 0.25)])
def test_calibration_error(confidence: float, right: bool, error: float) -> None:
    assert calibration_error(np.full(7, confidence), np.full(7, right)) == pytest.approx(error)


def test_calibration_within_a_bin_is_that_of_its_mean() -> None:
    confidences, right = np.full(10, 0.62), np.arange(10) < 6
    assert calibration_error(confidences, right) == pytest.approx(0.02)


def test_detection_of_texts_of_no_class() -> None:
    inside, outside = np.array([0.9, 0.6]), np.array([0.7, 0.5])
    assert out_of_scope_auroc(inside, outside) == 0.75  # three of four pairs are in the right order


def test_a_class_of_no_class_is_left_out_of_the_detection() -> None:
    names = ["a", "b", "oos"]
    inside = RankedClasses.of(np.array([[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]]))
    outside = RankedClasses.of(np.array([[0.2, 0.1, 0.7]]))
    found = measured(inside, [(0,), (2,)], outside, names, several=False, threshold=None)
    assert found["accuracy"] == 1
    assert found["out-of-scope AUROC"] == 1
    assert "out-of-scope AUROC" not in measured(inside, [(0,), (1,)], None, names, several=False, threshold=None)


def test_the_threshold_of_scope_separates_well() -> None:
    inside, outside = np.array([0.9, 0.8, 0.6, 0.7]), np.array([0.3, 0.5, 0.1, 0.75])
    found = scope_threshold(inside, outside)
    assert found == ScopeThreshold(threshold=0.55, detected=0.75, rejected=0.0)
    assert scope_threshold(inside, outside, 0.65) == ScopeThreshold(threshold=0.65, detected=0.75, rejected=0.25)


def test_of_thresholds_that_separate_about_as_well_the_least_is_taken() -> None:
    inside = np.repeat([0.95, 0.85, 0.99], [6, 2, 192])
    outside = np.repeat([0.2, 0.9, 0.97], [90, 6, 4])
    # The largest difference is 1.0 - 0.04 at 0.98, its standard error 0.014; 0.96 - 0.01 at 0.925 is within it.
    assert scope_threshold(inside, outside) == ScopeThreshold(threshold=0.925, detected=0.96, rejected=0.01)
