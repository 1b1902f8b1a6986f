"""Tests of the written-out elementwise functions: slopes by hand; against plain formulas see test_kernels."""

import math

import pytest
import torch

from training.softmax import elementwise
from training.softmax.elementwise import Slope


@pytest.mark.parametrize(
    ("function", "score", "slope"),
    [
        (elementwise.power(2.0), -4.0, -1.0),
        (elementwise.power(4.0), -16.0, -8.0),  # -D^2, -2 D
        (elementwise.logarithm(2.0), -math.log(5), -0.2),  # -1 / (1 + D)
        (elementwise.logarithm(1.0), -math.log(3), -1 / 12),  # -(1 / (2 sqrt D)) / (1 + sqrt D)
        (elementwise.radial_basis(0.5), math.exp(-2), -0.5 * math.exp(-2)),
        (elementwise.wavelet(2.0, 4.0), math.cos(2) / math.e, -(math.sin(2) / 2 + math.cos(2) / 4) / math.e),
        (elementwise.polynomial(0.5, 1.0, 1), 3.0, 0.5),
        (elementwise.polynomial(0.5, 1.0, 2), 9.0, 3.0),  # (4 / 2 + 1)^2, 2 * 3 / 2
        (elementwise.polynomial(0.5, 1.0, 3), 27.0, 13.5),  # 3 * 9 / 2
    ],
)
def test_score_and_slope_at_four(function: Slope, score: float, slope: float) -> None:
    values, slopes = function(torch.tensor([[4.0]], dtype=torch.float64))
    assert values.item() == pytest.approx(score)
    assert float(slopes) == pytest.approx(slope)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("make", [elementwise.power, elementwise.logarithm])
def test_slopes_at_distance_zero_are_finite(make: object, p: float) -> None:
    _, slopes = make(p)(torch.zeros(1, 1))  # type: ignore[operator]
    assert math.isfinite(float(slopes))
