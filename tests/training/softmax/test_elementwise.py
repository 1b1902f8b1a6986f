"""Tests of the written-out elementwise functions: slopes by hand; against plain formulas see test_kernels."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from training.softmax import elementwise
from training.softmax.elementwise import Slope


@pytest.mark.parametrize(
    ("function", "score", "slope"),
    [
        (partial(elementwise.power, p=2.0), -4.0, -1.0),
        (partial(elementwise.power, p=4.0), -16.0, -8.0),  # -D^2, -2 D
        (partial(elementwise.logarithm, p=2.0), -math.log(5), -0.2),  # -1 / (1 + D)
        (partial(elementwise.logarithm, p=1.0), -math.log(3), -1 / 12),  # -(1 / (2 sqrt D)) / (1 + sqrt D)
        (partial(elementwise.radial_basis, gamma=0.5), math.exp(-2), -0.5 * math.exp(-2)),
        (
            partial(elementwise.wavelet, a=2.0, b=4.0),
            math.cos(2) / math.e,
            -(math.sin(2) / 2 + math.cos(2) / 4) / math.e,
        ),
        (partial(elementwise.polynomial, alpha=0.5, c=1.0, p=1), 3.0, 0.5),
        (partial(elementwise.polynomial, alpha=0.5, c=1.0, p=2), 9.0, 3.0),  # (4 / 2 + 1)^2, 2 * 3 / 2
        (partial(elementwise.polynomial, alpha=0.5, c=1.0, p=3), 27.0, 13.5),  # 3 * 9 / 2
    ],
)
def test_score_and_slope_at_four(function: Slope, score: float, slope: float) -> None:
    values, slopes, factor = function(torch.tensor([[4.0]], dtype=torch.float64))
    assert values.item() == pytest.approx(score)
    assert factor * (1.0 if slopes is None else slopes.item()) == pytest.approx(slope)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("function", [elementwise.power, elementwise.logarithm])
def test_slopes_at_distance_zero_are_finite(function: Callable[..., tuple[Tensor, Tensor, float]], p: float) -> None:
    _, slopes, _ = function(torch.zeros(1, 1), p)
    assert math.isfinite(float(slopes))


Function = Callable[[Tensor], Tensor]
SIDES = [torch.tensor([0.5, 0.2, 0.1]), torch.tensor([0.3, -0.1, 0.4]), torch.tensor([1.0, 2.0]), torch.zeros(2)]
FUNCTIONS: list[Function] = [
    lambda product: elementwise.of_product(partial(elementwise.polynomial, alpha=0.5, c=1.0, p=3), product),
    lambda product: elementwise.of_distance(partial(elementwise.power, p=2.0), product, SIDES[0], SIDES[2]),
    lambda product: elementwise.of_distance(partial(elementwise.wavelet, a=1.0, b=2.0), product, SIDES[0], SIDES[2]),
    lambda product: elementwise.scaled(product, SIDES[0]),
    lambda product: elementwise.gaussian_overlap([product], [SIDES], 4),
    lambda product: elementwise.poincare(product, (SIDES[0], SIDES[0] + 1, SIDES[0] + 2), (SIDES[2], SIDES[2])),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_overwriting_changes_neither_scores_nor_gradients(function: Function) -> None:
    product, upstream = torch.tensor([[0.1, -0.3, 0.2], [0.0, 0.4, -0.5]]), torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    before = product.clone().requires_grad_()
    score = function(before)
    (gradient,) = torch.autograd.grad(score, before, upstream)
    assert torch.equal(before, product)
    scratch = product.clone().requires_grad_()
    with elementwise.overwriting():
        overwritten = function(scratch)
    assert torch.equal(overwritten, score)
    assert torch.equal(torch.autograd.grad(overwritten, scratch, upstream.clone())[0], gradient)
    assert torch.equal(function(product.clone()), score)  # the context has ended


def test_results_take_the_place_of_products() -> None:
    product = torch.ones(2, 3, requires_grad=True)
    with elementwise.overwriting():
        score = elementwise.of_distance(partial(elementwise.power, p=2.0), product, SIDES[0], SIDES[2])
    assert score.data_ptr() == product.data_ptr()
    gradient = torch.ones(2, 3)
    assert torch.autograd.grad(score, product, gradient)[0].data_ptr() == gradient.data_ptr()
