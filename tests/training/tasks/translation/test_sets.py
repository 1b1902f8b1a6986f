"""Calibration examples of sets of translations."""

import pytest

from training.tasks.translation.sets import set_rows


def test_a_row_has_rank_and_probabilities_of_the_first_acceptable_translation():
    rated = [
        [(0.5, True), (0.9, True)],
        [(0.5, False), (0.8, True), (0.5, False)],
        [(0.5, False), (0.8, False)],
    ]
    rows = set_rows(rated)
    assert rows.tolist() == [
        pytest.approx([0, 1, 0.0, 0.5]),
        pytest.approx([0, 2, 0.5, 0.4]),
        pytest.approx([0, 3, 0.9, 0.0]),
    ]
    assert set_rows([]).shape == (0, 4)
