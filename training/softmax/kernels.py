"""The kernels, which replace the inner product between a word vector and a context vector.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `e` columns of a block (`d` or fewer).

A kernel scores every pair of a word vector `W_v` (row of `weight`, `[V, d]`) and a context vector `h` (row of
`hidden`, `[N, d]`). All are elementwise functions of inner products `[N, V]` and of per-class and
per-position terms such as `||W_v||^2` (kernel paper, eq. 13), so no tensor is `[N, V, d]`. Each kernel defines

* `blocks(d)`: which columns of the context vector meet which columns of the word vector in an inner product;
* `class_statistics(weight)`, `position_statistics(hidden)`: the per-class and per-position terms, `[V]` and
  `[N]` each;
* `score(products, classes, positions, hidden_size)`: the elementwise function.

Per-class terms do not depend on the context, so they are computed once per batch in training and once per export.

Here are the nine kernels of the kernel paper; those of directions are in `training.softmax.directional`.
"""

import functools
import inspect
import math
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from . import elementwise
from .directional import Cosine, VonMisesFisher
from .kernel import (
    Block,
    Kernel,
    Statistics,
    at_least_float32,
    squared_distance,
    squared_norm,
)

__all__ = ["KERNELS", "PAPER_KERNELS", "build_kernel", "kernel_class"]


class Linear(Kernel, fused=True):
    """Score by `S = W_v . h`, the plain softmax layer (kernel paper, eq. 4)."""

    name = "lin"

    def score(self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int) -> Tensor:
        return products[0]


class _Distance(Kernel):
    """Score by a function of `D = ||W_v - h||^2`."""

    def origin(self, weight: Tensor) -> Tensor | None:
        return at_least_float32(weight.mean(0))

    def position_vectors(self, hidden: Tensor) -> Tensor:
        """Return `-2 h`, so that the products are those of the Gram identity (eq. 13)."""
        return -2.0 * hidden

    def class_statistics(self, weight: Tensor) -> Statistics:
        return (squared_norm(weight),)

    def score(self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int) -> Tensor:
        if self.differentiates_fast():
            return elementwise.of_distance(self.slope(hidden_size), products[0], classes[0], positions[0])
        return self.of_distance(squared_distance(products[0], classes[0], positions[0]), hidden_size)

    def slope(self, hidden_size: int) -> elementwise.Slope:
        """Return the function with its derivative, for constant hyperparameters."""
        raise AssertionError("every kernel of distances defines this")

    def of_distance(self, distance: Tensor, hidden_size: int) -> Tensor:
        """Return scores from squared distances: `[N, V]` -> `[N, V]`."""
        raise AssertionError("every kernel of distances defines this")

    def power(self, distance: Tensor, hidden_size: int) -> Tensor:
        """Return `D^(p/2)`; for p < 2 its derivative at 0 is infinite, and a floor of D makes it finite."""
        p = self.value("p", hidden_size)
        if not isinstance(p, Tensor) and p == 2.0:
            return distance
        return distance.clamp_min(torch.finfo(distance.dtype).tiny ** 0.5) ** (p / 2)


class Logarithm(_Distance, fused=True):
    """Score by `S = -log(||W_v - h||^p + 1)` (eq. 5)."""

    name = "log"
    defaults: ClassVar = {"p": lambda d: 2.0}
    has_exponentials = True

    def of_distance(self, distance: Tensor, hidden_size: int) -> Tensor:
        return -torch.log1p(self.power(distance, hidden_size))

    def slope(self, hidden_size: int) -> elementwise.Slope:
        return functools.partial(elementwise.logarithm, p=self.number("p", hidden_size))

    def exponentials(
        self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int
    ) -> Tensor:
        function = functools.partial(elementwise.exponential_of_logarithm, p=self.number("p", hidden_size))
        return elementwise.of_distance(function, products[0], classes[0], positions[0])


class Power(_Distance, fused=True):
    """Score by `S = -||W_v - h||^p` (eq. 6)."""

    name = "pow"
    defaults: ClassVar = {"p": lambda d: 2.0}

    def of_distance(self, distance: Tensor, hidden_size: int) -> Tensor:
        return -self.power(distance, hidden_size)

    def slope(self, hidden_size: int) -> elementwise.Slope:
        return functools.partial(elementwise.power, p=self.number("p", hidden_size))


class Polynomial(Kernel, fused=True):
    """Score by `S = (alpha W_v . h + c)^p` with a positive integer p (eq. 7)."""

    name = "pol"
    defaults: ClassVar = {"alpha": lambda d: d**-0.5, "c": lambda d: 1.0}

    def __init__(self, *, p: int = 2, **others: Any) -> None:
        if not _is_count(p):
            raise ValueError(f"p of kernel 'pol' must be a positive integer, not {p!r}")
        super().__init__(**others)
        self.p = int(p)

    @property
    def hyperparameters(self) -> dict[str, float]:
        return {**super().hyperparameters, "p": self.p}

    def score(self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int) -> Tensor:
        if self.differentiates_fast():
            alpha, c = (self.number(name, hidden_size) for name in ("alpha", "c"))
            function = functools.partial(elementwise.polynomial, alpha=alpha, c=c, p=self.p)
            return elementwise.of_product(function, products[0])
        return (self.value("alpha", hidden_size) * products[0] + self.value("c", hidden_size)) ** self.p


class RadialBasis(_Distance, fused=True):
    """Score by `S = exp(-gamma ||W_v - h||^2)` (eq. 8). In (0, 1], so its softmax is nearly flat."""

    name = "rbf"
    defaults: ClassVar = {"gamma": lambda d: 1.0 / d}

    def of_distance(self, distance: Tensor, hidden_size: int) -> Tensor:
        return torch.exp(-self.value("gamma", hidden_size) * distance)

    def slope(self, hidden_size: int) -> elementwise.Slope:
        return functools.partial(elementwise.radial_basis, gamma=self.number("gamma", hidden_size))


class Wavelet(_Distance, fused=True):
    """Score by `S = cos(||W_v - h||^2 / a) exp(-||W_v - h||^2 / b)` (eq. 12)."""

    name = "wav"
    defaults: ClassVar = {"a": lambda d: 1.0, "b": lambda d: float(d)}

    def of_distance(self, distance: Tensor, hidden_size: int) -> Tensor:
        a, b = self.value("a", hidden_size), self.value("b", hidden_size)
        return torch.cos(distance / a) * torch.exp(distance * (-1.0 / b))

    def slope(self, hidden_size: int) -> elementwise.Slope:
        a, b = self.number("a", hidden_size), self.number("b", hidden_size)
        return functools.partial(elementwise.wavelet, a=a, b=b)


class Hyperbolic(Kernel, fused=True):
    """Score by the negative Poincare distance `-acosh(1 + 2 ||u - v||^2 / ((1 - ||u||^2)(1 - ||v||^2)))` (eq. 11).

    The paper prints acos, whose argument would be out of range; the distance is acosh. `u` and `v` are `W_v` and `h`
    mapped into the open unit ball by `x -> tanh(||x||) x / ||x||`, their norm kept at most `1 - eps`.
    """

    name = "hpb"
    has_exponentials = True

    def __init__(self, *, eps: float = 1e-5, **others: Any) -> None:
        if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 < eps < 1:
            raise ValueError(f"eps of kernel 'hpb' must lie between 0 and 1, not {eps!r}")
        super().__init__(**others)
        self.eps = float(eps)

    @property
    def hyperparameters(self) -> dict[str, float]:
        return {"eps": self.eps}

    def _ball(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return for each vector its scale into the unit ball, its squared norm there, and 1 minus that: 3 of `[M]`."""
        # The floor keeps the root's slope finite at the origin, where tanh(r) / r is 1 all the same.
        norm = squared_norm(vectors).clamp_min(torch.finfo(vectors.dtype).tiny ** 0.5).sqrt()
        ball_norm = torch.tanh(norm).clamp_max(1.0 - self.eps)
        # 1 - tanh(r) without the cancellation that would cost most digits near the border.
        complement = (2.0 * torch.sigmoid(-2.0 * norm)).clamp_min(self.eps)
        return ball_norm / norm, ball_norm.square(), complement * (2.0 - complement)

    def position_vectors(self, hidden: Tensor) -> Tensor:
        """Return context vectors mapped into the ball, which is cheaper before their products with words than after."""
        return hidden * self._ball(at_least_float32(hidden))[0][:, None].to(hidden.dtype)

    def class_statistics(self, weight: Tensor) -> Statistics:
        """Return a word's terms of the distance, each divided by its gap `1 - ||u||^2`: 3 of `[V]`."""
        scale, norm, gap = self._ball(weight)
        return -2.0 * scale / gap, norm / gap, 1.0 / gap

    def position_statistics(self, hidden: Tensor) -> Statistics:
        _, norm, gap = self._ball(hidden)
        return norm, 2.0 / gap

    def score(self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int) -> Tensor:
        if self.differentiates_fast():
            return elementwise.poincare(products[0], classes, positions)
        factor, class_norm, class_gap = classes
        norm, gap = (statistic[:, None] for statistic in positions)
        excess = class_norm + norm * class_gap + factor * products[0]
        # acosh(1 + x) = log1p(x + sqrt(x (x + 2))); the floor keeps the root's slope finite at distance 0.
        excess = excess.clamp_min(torch.finfo(excess.dtype).tiny ** 0.5) * gap
        return -torch.log1p(excess + (excess * (excess + 2.0)).sqrt())

    def exponentials(
        self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int
    ) -> Tensor:
        return elementwise.poincare(products[0], classes, positions, exponential=True)


_LOG_VARIANCE_BOUND = 60.0
"""Log-variances are kept within this, so that scores and their gradients are finite in float32 at any distance."""


class _Gaussians(Kernel):
    """Score by the overlap of spherical Gaussians: a block of a vector is a mean and, last, `log sigma^2`."""

    def gaussians(self, hidden_size: int) -> int:
        """Return the number of Gaussians that a vector is cut into."""
        raise AssertionError("every kernel of Gaussians defines this")

    def blocks(self, hidden_size: int) -> Sequence[Block]:
        """Return the columns of each pair of a context's and a word's Gaussian; see `position_vectors`."""
        count = self.gaussians(hidden_size)
        size = hidden_size // count
        gaussians = [slice(i * size, (i + 1) * size) for i in range(count)]
        return [(position, word) for word in gaussians for position in gaussians]

    def initialize(self, weight: Tensor) -> None:
        """Make all variances 1.

        A class's score has the term `-(d - 1)/2 log(s_W^2 + s_h^2)`: with variances that are drawn like coordinates,
        it differs between classes by several nats, the same ones for every context, and hides the distances.
        """
        weight[:, self._log_variances(weight.shape[1])].zero_()  # `= 0` is not possible in a DTensor

    def origin(self, weight: Tensor) -> Tensor | None:
        """Return the mean of all means, for each Gaussian, and 0 for log-variances."""
        count = self.gaussians(weight.shape[1])
        mean = at_least_float32(weight.mean(0)).view(count, -1).mean(0).repeat(count)
        mean[self._log_variances(weight.shape[1])] = 0
        return mean

    def _log_variances(self, hidden_size: int) -> slice:
        """Return the columns of the log-variances, one a Gaussian."""
        size = hidden_size // self.gaussians(hidden_size)
        return slice(size - 1, None, size)

    def position_vectors(self, hidden: Tensor) -> Tensor:
        """Return `-2 h` with 0 for log-variances: products of whole, aligned blocks are faster than without them."""
        keep = torch.full((hidden.shape[1],), -2.0, dtype=hidden.dtype, device=hidden.device)
        keep[self._log_variances(hidden.shape[1])] = 0
        return hidden * keep

    def class_statistics(self, weight: Tensor) -> Statistics:
        """Return for each Gaussian the squared norm of its mean and its log-variance, `[V]` each."""
        count = self.gaussians(weight.shape[1])
        parts = weight.unflatten(1, (count, -1))
        if elementwise.overwrites() and weight.requires_grad:
            norms, variances = elementwise.norm_and_last(parts)
        else:
            norms, variances = squared_norm(parts[:, :, :-1]), parts[:, :, -1]
        variances = variances.clamp(-_LOG_VARIANCE_BOUND, _LOG_VARIANCE_BOUND)
        return tuple(statistic for i in range(count) for statistic in (norms[:, i], variances[:, i]))

    def score(self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int) -> Tensor:
        """Return the sum over pairs of Gaussians of the log of the integral of their product (eq. 9 and 10)."""
        count = self.gaussians(hidden_size)
        dimensions = hidden_size // count - 1
        pairs = [divmod(index, count) for index in range(len(products))]
        sides = [(*classes[2 * i : 2 * i + 2], *positions[2 * j : 2 * j + 2]) for i, j in pairs]
        if self.differentiates_fast():
            return elementwise.gaussian_overlap(products, sides, dimensions)
        # Pairs stand in front: few large operations, because a small one costs as much as a large one in a graph.
        norm, variance, position_norm, position_variance = (
            torch.stack(statistics) for statistics in zip(*sides, strict=True)
        )
        distance = squared_distance(torch.stack(list(products)), norm[:, None], position_norm)
        scale = 2 * math.pi
        inverse = (scale * variance.exp()[:, None] + scale * position_variance.exp()[..., None]).reciprocal()
        overlaps = 0.5 * dimensions * inverse.log() - math.pi * (distance * inverse)
        return functools.reduce(torch.add, overlaps.unbind())


class Gaussian(_Gaussians, fused=True):
    """Score by one spherical Gaussian on each side: `log of the integral of N(mu_W, s_W^2 I) N(mu_h, s_h^2 I)` (eq. 9).

    The last of the `d` numbers of a vector is `log sigma^2`, the others are the mean.
    """

    name = "ssg"

    def gaussians(self, hidden_size: int) -> int:
        if hidden_size < 2:
            raise ValueError(f"kernel 'ssg' needs a hidden size of at least 2, not {hidden_size}")
        return 1


class MixtureOfGaussians(_Gaussians, fused=True):
    """Score by the sum over pairs of Gaussians of the log of the integral of their product (eq. 10, as printed).

    A vector is cut into `num_gaussians` equal blocks, each laid out as in `ssg`.
    """

    name = "mog"

    def __init__(self, *, num_gaussians: int = 2, **others: Any) -> None:
        if not _is_count(num_gaussians):
            raise ValueError(f"num_gaussians of kernel 'mog' must be a positive integer, not {num_gaussians!r}")
        self.num_gaussians = int(num_gaussians)
        super().__init__(**others)

    @property
    def hyperparameters(self) -> dict[str, float]:
        return {"num_gaussians": self.num_gaussians}

    def gaussians(self, hidden_size: int) -> int:
        if hidden_size % self.num_gaussians or hidden_size < 2 * self.num_gaussians:
            raise ValueError(
                f"num_gaussians of kernel 'mog' must divide the hidden size into blocks of 2 or more: "
                f"{self.num_gaussians} does not divide {hidden_size} so"
            )
        return self.num_gaussians


PAPER_KERNELS: Mapping[str, type[Kernel]] = {
    kernel.name: kernel
    for kernel in (
        Linear,
        Logarithm,
        Power,
        Polynomial,
        RadialBasis,
        Gaussian,
        MixtureOfGaussians,
        Hyperbolic,
        Wavelet,
    )
}
"""The nine kernels of the kernel paper by name."""

KERNELS: Mapping[str, type[Kernel]] = {**PAPER_KERNELS, Cosine.name: Cosine, VonMisesFisher.name: VonMisesFisher}
"""All kernels by name."""


def _is_count(value: object) -> bool:
    """Return whether a value is 1, 2, 3 and so on, or as a search draws it 1.0, 2.0 and so on."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 and float(value).is_integer()


def build_kernel(name: str, **hyperparameters: Any) -> Kernel:
    """Return a kernel by its name in `KERNELS`, or a class of your own by `package.module:ClassName`.

    Examples: `build_kernel("rbf", gamma=0.5)`, `build_kernel("mypackage.kernels:Cosine", tau=0.1)`.

    Hyperparameters that are left out have their defaults, some of which depend on the hidden size: give `hidden_size`
    to fix them at once. The default scale of `cos` and `vmf` is that of `num_classes`, and 16 without it.
    `learnable=True` makes the real-valued ones parameters.
    Raises `ValueError` for an unknown name (naming the known ones), a class that cannot be imported or is no kernel, an
    unknown hyperparameter or one out of range.
    """
    kernel = kernel_class(name)
    arguments = inspect.signature(kernel.__init__).parameters.values()
    named = {argument.name for argument in arguments if argument.kind is not argument.VAR_KEYWORD} - {"self"}
    common = {"learnable", "hidden_size", "num_classes"}
    own = {*kernel.defaults, *named} - common
    unknown = set(hyperparameters) - own - common
    if unknown:
        known = ", ".join(sorted(own)) or "none"
        raise ValueError(f"unknown hyperparameter {min(unknown)!r} of kernel {name!r}; it has: {known}")
    if not kernel.class_defaults:
        hyperparameters.pop("num_classes", None)  # constructors of own classes may not take it
    return kernel(**hyperparameters)


def kernel_class(name: str) -> type[Kernel]:
    """Return the class of a kernel by its name in `KERNELS` or by `package.module:ClassName`.

    Raises `ValueError` for an unknown name and for a class that cannot be imported or is no kernel.
    """
    if not isinstance(name, str):
        raise ValueError(f"the name of a kernel must be a string, not {name!r}")
    kernel = _own_class(name) if ":" in name else KERNELS.get(name)
    if kernel is None:
        raise ValueError(f"unknown kernel {name!r}; known kernels: {', '.join(KERNELS)}, or package.module:ClassName")
    return kernel


def _own_class(path: str) -> type[Kernel]:
    """Import a subclass of `Kernel` from `package.module:ClassName`."""
    try:
        found = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"kernel {path!r} cannot be imported: {error}; modules of the current directory are found too"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Kernel)) or found.score is Kernel.score:
        raise ValueError(f"kernel {path!r} is not a subclass of {__package__}.Kernel that overrides score")
    if KERNELS.get(found.name, found) is not found:
        raise ValueError(f"kernel {path!r} has the name of another kernel, {found.name!r}")
    return found
