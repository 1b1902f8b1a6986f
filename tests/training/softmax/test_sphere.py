"""Tests of the mean of an exponential over the sphere, against Bessel functions in forty-digit arithmetic."""

import math

import mpmath
import pytest
import torch

from training.softmax.sphere import log_mean_exponential

CONCENTRATIONS = [1e-6, 0.01, 1.0, 3.0, 10.0, 30.0, 300.0, 1e4]


def _golden(kappa: float, dimensions: int) -> tuple[float, float]:
    """Return the logarithm of the mean and its derivative, a ratio of Bessel functions."""
    half = mpmath.mpf(dimensions) / 2
    with mpmath.workdps(40):
        value = mpmath.log(mpmath.hyp0f1(half, mpmath.mpf(kappa) ** 2 / 4))
        return float(value), float(mpmath.besseli(half, kappa) / mpmath.besseli(half - 1, kappa))


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5, 16, 33, 34, 35, 128, 768])
def test_value_and_derivative_are_within_their_bounds(dimensions: int) -> None:
    kappa = torch.tensor(CONCENTRATIONS, dtype=torch.float64, requires_grad=True)
    values = log_mean_exponential(kappa.square(), dimensions)
    (slopes,) = torch.autograd.grad(values.sum(), kappa)
    narrow = log_mean_exponential(kappa.detach().float().square(), dimensions)
    for each, value, slope, rounded in zip(
        CONCENTRATIONS, values.tolist(), slopes.tolist(), narrow.tolist(), strict=True
    ):
        expected, expected_slope = _golden(each, dimensions)
        assert abs(value - expected) <= 1e-11 * max(1.0, expected)
        assert abs(slope - expected_slope) <= 1e-11
        assert abs(rounded - expected) <= 5e-7 * max(1.0, expected)


def test_one_dimension_has_the_hyperbolic_cosine() -> None:
    kappa = torch.tensor([0.5, 4.0], dtype=torch.float64)
    expected = [math.log(math.cosh(0.5)), math.log(math.cosh(4.0))]
    assert log_mean_exponential(kappa.square(), 1).tolist() == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("dimensions", [2, 40])
def test_derivatives_at_0_are_those_of_the_power_series(dimensions: int) -> None:
    """`log M = kappa^2 / (2 d) + ...`"""
    square = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    value = log_mean_exponential(square, dimensions)
    (slope,) = torch.autograd.grad(value.sum(), square)
    assert value.item() == pytest.approx(0.0, abs=1e-14)
    assert slope.item() == pytest.approx(1 / (2 * dimensions), rel=1e-11)


@pytest.mark.parametrize("dimensions", [2, 8, 64])
def test_gradients_equal_finite_differences(dimensions: int) -> None:
    square = torch.tensor([0.3, 4.0, 90.0], dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda values: log_mean_exponential(values, dimensions), square)
    torch.autograd.gradgradcheck(lambda values: log_mean_exponential(values, dimensions), square)
