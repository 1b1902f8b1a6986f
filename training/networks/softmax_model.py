"""Networks that end in a generalized softmax."""

from collections.abc import Callable

from torch import Tensor, nn

from training.softmax import GeneralizedSoftmax

__all__ = ["SoftmaxModel"]


class SoftmaxModel(nn.Module):
    """A network and its output layer."""

    __call__: Callable[..., Tensor]
    output_layer: GeneralizedSoftmax
