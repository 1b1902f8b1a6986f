"""Tests of the base class of kernels: distances from inner products, widening, a kernel without methods.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from training.softmax.kernel import Kernel, at_least_float32, squared_distance, squared_norm

WEIGHT = torch.tensor([[1.0, 0.0], [3.0, -1.0]])
HIDDEN = torch.tensor([[2.0, 1.0], [1.0, 0.0]])


def _distances(weight: Tensor, hidden: Tensor) -> Tensor:
    return squared_distance(-2 * hidden @ weight.t(), squared_norm(weight), squared_norm(hidden))


def test_squared_distance_by_hand() -> None:
    assert _distances(WEIGHT, HIDDEN).tolist() == [[2, 5], [0, 5]]


@given(seed=st.integers(0, 2**32), scale=st.floats(1e-5, 1e4))
def test_squared_distance_is_never_negative(seed: int, scale: float) -> None:
    weight = scale * torch.randn(11, 8, generator=torch.Generator().manual_seed(seed))
    assert _distances(weight, weight).min() >= 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wide_values_stay_as_they_are(dtype: torch.dtype) -> None:
    values = torch.zeros(2, dtype=dtype)
    assert at_least_float32(values) is values


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    assert at_least_float32(torch.ones(2, dtype=dtype)).dtype == torch.float32


def test_a_kernel_without_a_score_is_a_mistake() -> None:
    with pytest.raises(NotImplementedError, match="Kernel does not override score"):
        Kernel()(WEIGHT, HIDDEN)
