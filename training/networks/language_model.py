"""A recurrent language model: word vectors, LSTM, generalized softmax.

Shapes: `B` sequences, `T` time steps, `V` words, `d` hidden size, `L` layers.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.networks.lstm import LSTM, State
from training.networks.softmax_model import SoftmaxModel
from training.softmax import GeneralizedSoftmax

__all__ = ["RecurrentLanguageModel"]


class RecurrentLanguageModel(SoftmaxModel):
    """Word vectors are the rows of the output layer's projection matrix (tied; Press and Wolf 2017), or untied."""

    def __init__(
        self, network: LSTM, output_layer: GeneralizedSoftmax, *, tied: bool = True, word_dropout: float = 0.0
    ) -> None:
        """`word_dropout` is the probability that a word's vector is 0 wherever a batch reads the word, in training."""
        super().__init__()
        self.network = network
        self.word_dropout = word_dropout
        self.output_layer = output_layer
        self.word_vectors = None if tied else nn.Embedding(*output_layer.weight.shape)

    def forward(self, tokens: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Return context vectors `[B, T, d]` of tokens `[B, T]`, and the new state; `lengths` as in `LSTM.forward`."""
        weight = self.output_layer.weight if self.word_vectors is None else self.word_vectors.weight
        vectors = functional.embedding(tokens, weight)
        if self.training and self.word_dropout > 0:
            kept = torch.rand(len(weight), device=tokens.device) >= self.word_dropout
            vectors = vectors * (kept / (1 - self.word_dropout)).to(vectors.dtype)[tokens].unsqueeze(-1)
        outputs, state = self.network(vectors, state, lengths)
        return outputs, state

    def initial_state(self, batch_size: int) -> State:
        return self.network.initial_state(batch_size)
