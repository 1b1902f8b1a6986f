"""Classifiers of texts: an encoder, one vector for the text, and an output layer."""

from typing import Literal

import torch
from torch import Tensor

from training.networks.dropout import Dropout
from training.networks.softmax_model import SoftmaxModel
from training.networks.text_encoder import TextEncoder
from training.softmax import GeneralizedSoftmax

__all__ = ["Pooling", "TextClassifier", "pooled"]

Pooling = Literal["mean", "cls"]
"""The text's vector: the mean of its tokens', or that of its first token, `[CLS]`."""


class TextClassifier(SoftmaxModel):
    """Shapes: `B` texts, `T` tokens, `d` hidden size."""

    def __init__(self, encoder: TextEncoder, output_layer: GeneralizedSoftmax, pooling: Pooling = "mean") -> None:
        super().__init__()
        self.encoder = encoder
        self.output_layer = output_layer
        self.pooling: Pooling = pooling
        self.dropout = Dropout(encoder.config.dropout)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens `[B, T]`, lengths `[B]` -> inputs of the output layer, `[B, d]`."""
        return self.dropout(pooled(self.encoder(tokens, lengths), lengths, self.pooling))


def pooled(hidden: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
    """Return one vector for each text: `[B, T, d]`, `[B]` -> `[B, d]`."""
    if pooling == "cls":
        return hidden[:, 0]
    inside = torch.arange(hidden.shape[1], device=lengths.device) < lengths[:, None]
    return torch.where(inside[:, :, None], hidden, 0.0).sum(1) / lengths[:, None]
