"""Tests of the measures of confidence."""

import math

import numpy as np

from benchmarks.translation_confidence import area, recall_at

CONFIDENCES = np.array([0.1, 0.2, 0.3, 0.4, 0.9, 0.9])
POOR = np.array([True, True, False, True, False, True])


def test_the_area_counts_pairs_in_the_right_order() -> None:
    assert area(CONFIDENCES, POOR) == (2 + 2 + 1 + 0.5) / 8
    assert math.isnan(area(CONFIDENCES, np.ones(6, bool)))


def test_recall_is_the_largest_at_that_precision() -> None:
    assert recall_at(1.0, CONFIDENCES, POOR) == 2 / 4
    assert recall_at(0.75, CONFIDENCES, POOR) == 3 / 4
    assert recall_at(0.6, CONFIDENCES, POOR) == 4 / 4, "equal confidences are on one side"
    assert recall_at(0.9, np.zeros(4), np.array([True, False, False, False])) == 0
