"""The mean of an exponential over the unit sphere, which normalizes von Mises-Fisher distributions.

Shapes: `V` concentrations.

With a concentration `kappa` the density of a von Mises-Fisher distribution at the cosine x to its mean direction is
`exp(kappa x) / M(kappa)` times that of the uniform distribution on the sphere in d dimensions, with

    M(kappa) = mean over the sphere of exp(kappa x) = Gamma(d/2) (2 / kappa)^(d/2 - 1) I_(d/2 - 1)(kappa)

and the modified Bessel function I. Its normalizing constant is `C_d(kappa) = C_d(0) / M(kappa)` (Scott et al. 2021,
"von Mises-Fisher Loss"). Nothing here cancels, so that float32 has no other errors than those of rounding.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

__all__ = ["log_mean_exponential"]

_LEAST_ORDER = 16
"""The order of a Bessel function from which on its uniform expansion is exact enough."""
_TERMS = 8
"""Terms of the uniform expansion behind the first."""


def _polynomials() -> Sequence[Sequence[float]]:
    """Return the coefficients of `U_0` to `U_8`: of `U_k`, those of `p^k`, `p^(k+2)` to `p^(3k)` (DLMF 10.41.9)."""
    found = [[Fraction(1)]]
    for k in range(_TERMS):
        last, following = found[-1], [Fraction(0)] * (k + 2)
        for i, u in enumerate(last):
            power = k + 2 * i
            # p^2 (1 - p^2) U' / 2, and the integral of (1 - 5 p^2) U / 8
            following[i] += u * (Fraction(power, 2) + Fraction(1, 8 * (power + 1)))
            following[i + 1] -= u * (Fraction(power, 2) + Fraction(5, 8 * (power + 3)))
        found.append(following)
    return [[float(u) for u in each] for each in found]


_POLYNOMIALS = _polynomials()


def log_mean_exponential(square: Tensor, dimensions: int) -> Tensor:
    """Return `log M(kappa)` in d dimensions from `kappa^2`: `[V]` -> `[V]`.

    It is differentiable anywhere, also at 0. The error is at most 1e-11 times the larger of 1 and the result, that of
    the derivative in kappa 1e-11, plus rounding errors of the type of numbers. Lower orders follow from two of at least
    `_LEAST_ORDER` by the recurrence

        M_(n-1) = M_n + kappa^2 / (4 n (n + 1)) M_(n+1)    for M of the order n = d/2 - 1
    """
    order = dimensions / 2 - 1
    steps = max(0, math.ceil(_LEAST_ORDER - order))
    top = order + steps
    found = _expansion(square, top)
    if not steps:
        return found
    ratio = (_expansion(square, top + 1) - found).exp()
    for step in range(steps):
        n = top - step
        growth = square / (4 * n * (n + 1)) * ratio
        found, ratio = found + growth.log1p(), (1 + growth).reciprocal()
    return found


def _expansion(square: Tensor, order: float) -> Tensor:
    """Return `log M` of an order by the expansion that is uniform in the concentration (DLMF 10.41.3)."""
    relative = square / order**2
    root = (1 + relative).sqrt()
    excess = relative / (1 + root)  # root - 1
    at_one = sum(sum(coefficients) / order**k for k, coefficients in enumerate(_POLYNOMIALS))
    correction = (_series(root.reciprocal(), order) / at_one).log()
    return order * (excess - (excess / 2).log1p()) - excess.log1p() / 2 + correction


def _series(p: Tensor, order: float) -> Tensor:
    """Return `sum_k U_k(p) / order^k`, with U of DLMF 10.41.10: `[V]` -> `[V]`."""
    ratio, square, total = p / order, p * p, torch.zeros_like(p)
    for coefficients in reversed(_POLYNOMIALS):
        polynomial = torch.zeros_like(p)
        for coefficient in reversed(coefficients):
            polynomial = polynomial * square + coefficient
        total = total * ratio + polynomial
    return total
