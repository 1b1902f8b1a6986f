"""Networks that end in a generalized softmax."""

from torch import nn

from training.softmax import GeneralizedSoftmax

__all__ = ["SoftmaxModel"]


class SoftmaxModel(nn.Module):
    """A network and its output layer."""

    output_layer: GeneralizedSoftmax
