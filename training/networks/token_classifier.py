"""Classifiers of tokens: an encoder, and an output layer for the hidden state of each token."""

from torch import Tensor

from training.networks.dropout import Dropout
from training.networks.softmax_model import SoftmaxModel
from training.networks.text_encoder import TextEncoder
from training.softmax import GeneralizedSoftmax

__all__ = ["TokenClassifier"]


class TokenClassifier(SoftmaxModel):
    """Shapes: `B` texts, `T` tokens, `d` hidden size."""

    def __init__(self, encoder: TextEncoder, output_layer: GeneralizedSoftmax) -> None:
        super().__init__()
        self.encoder = encoder
        self.output_layer = output_layer
        self.dropout = Dropout(encoder.config.dropout)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens `[B, T]`, lengths `[B]` -> inputs of the output layer, `[B, T, d]`."""
        return self.dropout(self.encoder(tokens, lengths))
