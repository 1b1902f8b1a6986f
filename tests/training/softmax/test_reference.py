"""Tests of the reference: scores against sixty-digit arithmetic, layers and losses against cases by hand.

Shapes: `N` positions, `V` classes, `d` hidden size, `K` components.
"""

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch

from training.softmax import KERNELS, GeneralizedSoftmax, build_kernel, reference


def test_every_kernel_has_a_formula() -> None:
    assert set(reference.FORMULAS) == set(KERNELS)


def _golden_distance(w: list[Any], h: list[Any]) -> Any:
    return mpmath.fsum((a - b) ** 2 for a, b in zip(w, h, strict=True))


def _golden_overlap(w: list[Any], h: list[Any]) -> Any:
    variance, size = mpmath.exp(w[-1]) + mpmath.exp(h[-1]), len(w) - 1
    distance = _golden_distance(w[:-1], h[:-1])
    return -mpmath.mpf(size) / 2 * mpmath.log(2 * mpmath.pi * variance) - distance / (2 * variance)


def _golden_poincare(w: list[Any], h: list[Any]) -> Any:
    def ball(vector: list[Any]) -> list[Any]:
        norm = mpmath.norm(vector)
        return [min(mpmath.tanh(norm), 1 - mpmath.mpf("1e-5")) * x / norm for x in vector]

    u, v = ball(w), ball(h)
    gaps = (1 - mpmath.fdot(u, u)) * (1 - mpmath.fdot(v, v))
    return -mpmath.acosh(1 + 2 * _golden_distance(u, v) / gaps)


def _golden_von_mises_fisher(w: list[Any], h: list[Any], scale: float) -> Any:
    kappa, order = scale * mpmath.norm(w), mpmath.mpf(len(w)) / 2 - 1
    mean = mpmath.gamma(order + 1) * (2 / kappa) ** order * mpmath.besseli(order, kappa)
    return scale * mpmath.fdot(w, h) / mpmath.norm(h) - mpmath.log(mean)


GOLDEN: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "lin": mpmath.fdot,
    "log": lambda w, h: -mpmath.log(_golden_distance(w, h) + 1),
    "pow": lambda w, h: -_golden_distance(w, h),
    "pol": lambda w, h: (mpmath.fdot(w, h) / mpmath.sqrt(len(w)) + 1) ** 2,
    "rbf": lambda w, h: mpmath.exp(-_golden_distance(w, h) / len(w)),
    "ssg": _golden_overlap,
    "mog": lambda w, h: mpmath.fsum(_golden_overlap(a, b) for a in (w[:4], w[4:]) for b in (h[:4], h[4:])),
    "hpb": _golden_poincare,
    "vmf": lambda w, h: _golden_von_mises_fisher(w, h, 16),
    "cos": lambda w, h: 16 * mpmath.fdot(w, h) / (mpmath.norm(w) * mpmath.norm(h)),
    "wav": lambda w, h: mpmath.cos(_golden_distance(w, h)) * mpmath.exp(-_golden_distance(w, h) / len(w)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_float64_scores_equal_sixty_digit_arithmetic(name: str) -> None:
    """Defaults of the specification, d = 8; relative 1e-9."""
    generator = torch.Generator().manual_seed(9)
    weight, hidden = (torch.randn(count, 8, generator=generator, dtype=torch.float64) for count in (11, 7))
    scores = reference.scores(build_kernel(name), weight, hidden)
    with mpmath.workdps(60):
        rows = [[[mpmath.mpf(x) for x in vector.tolist()] for vector in vectors] for vectors in (weight, hidden)]
        for n, h in enumerate(rows[1]):
            for v, w in enumerate(rows[0]):
                assert abs(mpmath.mpf(scores[n, v].item()) / GOLDEN[name](w, h) - 1) < 1e-9


def _layer(**options: Any) -> GeneralizedSoftmax:
    """Return a float64 layer of two components `lin`, V = 3, d = 1, whose scores at h = 1 are (0, ln 3, -5) in both."""
    layer = GeneralizedSoftmax(3, 1, "2*lin", **options).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0], [math.log(3)], [-5.0]]))
        layer.prior.copy_(torch.tensor([[math.log(3), 0.0]]))  # pi = (3/4, 1/4)
        layer.projections.fill_(50.0)  # tanh(50) is 1
    return layer


ONE = torch.ones(3, 1, dtype=torch.float64)


def test_sparse_probabilities_and_losses_by_hand() -> None:
    """Of the two best 1 / (1 + 3) and 3 / (1 + 3); the third has probability 0, and the loss ln 4 + 5."""
    layer = _layer(sparse_k=2)
    expected = torch.tensor([[0.25, 0.75, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(reference.log_prob(layer, ONE[:1]).exp(), expected, rtol=1e-7, atol=0)
    losses = reference.losses(layer, ONE, torch.arange(3))
    assert losses.tolist() == pytest.approx([math.log(4), math.log(4 / 3), math.log(4) + 5])


def test_smoothing_and_variance_penalty_by_hand() -> None:
    """The variance of (3/4, 1/4) is 1/16; smoothing mixes the target with the mean over the three classes."""
    layer = _layer(label_smoothing=0.3, variance_penalty=2.0)
    total = math.log(4 + math.exp(-5))
    log_p = [-total, math.log(3) - total, -5 - total]
    expected = [-0.7 * each - 0.3 * sum(log_p) / 3 + 2 / 16 for each in log_p]
    assert reference.losses(layer, ONE, torch.arange(3)).tolist() == pytest.approx(expected)


def test_components_may_have_matrices_of_their_own() -> None:
    """Corrections left @ right of (0, 1, 2) and (0, 0, 0) times 10; scores at h = 1 are then the sums."""
    layer = _layer(untied=1)
    with torch.no_grad():
        layer.left.copy_(torch.tensor([[[0.0], [1.0], [2.0]], [[0.0], [0.0], [0.0]]]))
        layer.right.fill_(10.0)
    log_pi, scores = reference.component_scores(layer, ONE[:1])
    torch.testing.assert_close(log_pi.exp(), torch.tensor([[0.75, 0.25]], dtype=torch.float64))
    expected = torch.tensor([[[0.0, math.log(3) + 10, 15.0], [0.0, math.log(3), -5.0]]], dtype=torch.float64)
    torch.testing.assert_close(scores, expected, rtol=1e-6, atol=1e-6)
