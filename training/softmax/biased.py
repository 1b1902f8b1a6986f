"""The plain softmax layer with a bias for each class, `S = W_v . h + b_v`.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.softmax.kernels import as_rows, at_least_float32
from training.softmax.mixture import GeneralizedSoftmax
from training.softmax.sparse import Reduction, check_target_shape

__all__ = ["BiasedSoftmax"]


class BiasedSoftmax(GeneralizedSoftmax):
    """The kernel `lin` and a bias `[V]`; a class of bias minus infinity has probability 0.

    It holds `[N, V]` in training, which the layers of recipes do not.
    """

    def __init__(self, num_classes: int, hidden_size: int) -> None:
        super().__init__(num_classes, hidden_size, "lin")
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def scores(self, hidden: Tensor) -> list[Tensor]:
        """See `GeneralizedSoftmax`."""
        return [at_least_float32(functional.linear(hidden, self.weight, self.bias))]

    def target_log_prob(self, hidden: Tensor, target: Tensor, *, sparse: bool = True) -> Tensor:
        """See `GeneralizedSoftmax`; there is no sparse-softmax here."""
        check_target_shape(hidden, target)
        return self.log_prob(hidden).gather(-1, target[..., None])[..., 0]

    def loss(self, hidden: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: Reduction = "sum") -> Tensor:
        """See `GeneralizedSoftmax`."""
        check_target_shape(hidden, target)
        scores, rows = as_rows(self.scores(hidden)[0]), target.flatten()
        losses = functional.cross_entropy(scores, rows, ignore_index=ignore_index, reduction=reduction)
        return losses.view(target.shape) if reduction == "none" else losses
