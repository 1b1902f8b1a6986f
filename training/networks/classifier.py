"""What classifiers of texts and images have in common."""

from torch import nn

from training.softmax import GeneralizedSoftmax

__all__ = ["ClassifierModel"]


class ClassifierModel(nn.Module):
    """An encoder that gives one vector for each example, `[B, d]`, and an output layer."""

    output_layer: GeneralizedSoftmax
