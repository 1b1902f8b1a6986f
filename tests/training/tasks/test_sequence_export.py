"""Tests of the comparison of candidates, by hand."""

import numpy as np
import pytest

from models.backend import Array
from training.tasks.sequence_export import difference_by_token

INF = np.inf
LOG_PROBABILITIES: Array = np.array([[[-0.5, -1.0, -1.0, -4.0]]], np.float32)
TOKENS: Array = np.array([[[2, 0, 3, 1]]])
SPARSE: Array = np.array([[[-0.5, -1.0, -INF, -INF]]], np.float32)


def difference(found: list[float], candidates: list[int], *, sparse: bool = False) -> list[float]:
    values = np.array([[found]], np.float32), np.array([[candidates]])
    result = difference_by_token(SPARSE if sparse else LOG_PROBABILITIES, TOKENS, *values)
    assert result.shape == (1, 1, len(found))
    return list(result[0, 0])


def test_a_log_probability_is_compared_with_that_of_its_token() -> None:
    assert difference([-0.5, -1.0], [2, 0]) == [0, 0]
    assert difference([-0.5, -1.25], [2, 0]) == [0, 0.25]
    assert difference([-0.5, -1.0], [0, 2]) == [0.5, 0.5]


def test_tokens_of_equal_log_probabilities_may_change_places() -> None:
    assert difference([-0.5, -1.0, -1.0], [2, 3, 0]) == [0, 0, 0]


@pytest.mark.parametrize("token", [-1, 4])
def test_a_number_that_is_no_token_is_found(token: int) -> None:
    assert INF in difference([-0.5, -1.0], [2, token])


def test_a_number_that_is_none_is_found() -> None:
    assert np.isnan(difference([np.nan, -1.0], [2, 0])[0])


def test_tokens_that_a_sparse_layer_leaves_out() -> None:
    """The last of two that are kept is token 0, with -1; 1 and 3 are left out."""
    assert difference([-0.5, -1.0, -INF, -INF], [2, 0, 1, 3], sparse=True) == [0, 0, 0, 0]
    assert difference([-0.5, -1.0, -INF, -INF], [2, 3, 0, 1], sparse=True) == [0, 0, INF, 0]
    assert difference([-0.5, -1.125], [2, 3], sparse=True) == [0, 0.125]
    assert difference([-0.5, -1.0], [3, 0], sparse=True) == [0.5, 0]
