"""Tests of metrics as functions of sums over examples, by hand."""

import numpy as np
import pytest

from training.tasks.examples import Examples, bits_per_byte, f1, mean, perplexity


def test_metrics_by_hand() -> None:
    """3 of 4 right, 1 of 2; probabilities 1/2 and 1/8, and 1; 1/64 for 3 bytes; 2 of 3 predicted, 4 true classes."""
    assert mean(np.array([[3.0, 4.0], [1.0, 2.0]])) == pytest.approx([0.75, 0.5])
    assert perplexity(np.array([[np.log(1 / 16), 2.0], [0.0, 1.0]])) == pytest.approx([4.0, 1.0])
    assert bits_per_byte(np.array([[np.log(1 / 64), 3.0]])) == pytest.approx([2.0])
    assert Examples(np.array([[1.0, 1.0], [0.0, 1.0]]), mean).value == 0.5
    assert f1(np.array([[2.0, 1.0, 2.0]])) == pytest.approx([4 / 7])
