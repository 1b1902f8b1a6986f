"""Kernels from outside the package, as a user would write them."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from training.softmax import Kernel
from training.softmax.kernels import Power


class Bilinear(Kernel):
    """`S = W_v . h / (1 + |W_v . h|)`: overrides `score` and nothing else."""

    def score(
        self, products: Sequence[Tensor], classes: tuple[Tensor, ...], positions: tuple[Tensor, ...], hidden_size: int
    ) -> Tensor:
        return products[0] / (1 + products[0].abs())


class Cosine(Kernel):
    """`S = cos(W_v, h) / tau`: a hyperparameter, and norms as per-class and per-position terms."""

    name = "cosine"
    defaults: ClassVar = {"tau": lambda d: d**-0.5}

    def class_statistics(self, weight: Tensor) -> tuple[Tensor, ...]:
        return (weight.norm(dim=-1) + 1e-6,)

    def score(
        self, products: Sequence[Tensor], classes: tuple[Tensor, ...], positions: tuple[Tensor, ...], hidden_size: int
    ) -> Tensor:
        return products[0] / (classes[0] * positions[0][:, None] * self.value("tau", hidden_size))


class Exponential(Kernel):
    """`S = exp(scale W_v . h)`: autograd keeps the result itself for the backward pass."""

    defaults: ClassVar = {"scale": lambda d: 1.0 / d}

    def score(
        self, products: Sequence[Tensor], classes: tuple[Tensor, ...], positions: tuple[Tensor, ...], hidden_size: int
    ) -> Tensor:
        return (self.value("scale", hidden_size) * products[0]).exp()


class Centred(Kernel):
    """`S = W_v . h - bias ||W_v||^2`: a hyperparameter in a per-class term, and no term per position."""

    defaults: ClassVar = {"bias": lambda d: 0.5}

    def class_statistics(self, weight: Tensor) -> tuple[Tensor, ...]:
        return (self.value("bias", weight.shape[1]) * weight.square().sum(-1),)

    def position_statistics(self, hidden: Tensor) -> tuple[Tensor, ...]:
        return ()

    def score(
        self, products: Sequence[Tensor], classes: tuple[Tensor, ...], positions: tuple[Tensor, ...], hidden_size: int
    ) -> Tensor:
        return products[0] - classes[0]


class Shrunk(Power):
    """A kernel derived from one of the nine: half its score."""

    def score(
        self, products: Sequence[Tensor], classes: tuple[Tensor, ...], positions: tuple[Tensor, ...], hidden_size: int
    ) -> Tensor:
        return 0.5 * super().score(products, classes, positions, hidden_size)


class Copied(Kernel):
    """A kernel that claims the name of another one."""

    name = "lin"

    def score(
        self, products: Sequence[Tensor], classes: tuple[Tensor, ...], positions: tuple[Tensor, ...], hidden_size: int
    ) -> Tensor:
        return -products[0]


class Scoreless(Kernel):
    """A kernel that overrides nothing."""


NOT_A_CLASS = 3
