"""Tests of the classes of classifiers."""

import math

import numpy as np
import pytest

from models import QueryError
from models.tasks.labels import Label, best_labels, checked_top_k


def test_classes_of_probability_0_are_left_out():
    values = np.array([[math.log(0.75), math.log(0.25), -math.inf], [0.0, -math.inf, -math.inf]])
    classes = np.array([[2, 0, 1], [1, 0, 2]])
    first, second = best_labels(["a", "b", "c"], values, classes, [1, 3])
    assert first == (Label("c", math.log(0.75)),)
    assert [each.label for each in second] == ["b"]
    assert first[0].probability == pytest.approx(0.75)


def test_no_more_classes_are_asked_for_than_there_are():
    assert checked_top_k(5, ["a", "b"]) == 2
    with pytest.raises(QueryError, match="top_k must be at least 1, not 0"):
        checked_top_k(0, ["a", "b"])
