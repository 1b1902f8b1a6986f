"""A kernel for recipes: `softserve_embedding.kernels:Cosine`."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from training.softmax import Kernel

__all__ = ["Cosine"]


class Cosine(Kernel):
    """`S = cos(W_v, h) / tau`, by products and norms."""

    name = "cosine"
    defaults: ClassVar = {"tau": lambda d: 0.1}

    def class_statistics(self, weight: Tensor) -> tuple[Tensor, ...]:
        return (weight.norm(dim=-1) + 1e-6,)

    def score(
        self, products: Sequence[Tensor], classes: tuple[Tensor, ...], positions: tuple[Tensor, ...], hidden_size: int
    ) -> Tensor:
        return products[0] / (classes[0] * positions[0][:, None] * self.value("tau", hidden_size))
