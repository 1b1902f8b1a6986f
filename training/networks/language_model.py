"""A recurrent language model: word vectors, LSTM, generalized softmax.

Shapes: `B` sequences, `T` time steps, `V` words, `d` hidden size, `L` layers.
"""

from torch import Tensor, nn
from torch.nn import functional

from training.networks.lstm import LSTM, State
from training.networks.softmax_model import SoftmaxModel
from training.softmax import GeneralizedSoftmax

__all__ = ["RecurrentLanguageModel"]


class RecurrentLanguageModel(SoftmaxModel):
    """Word vectors are the rows of the output layer's projection matrix (tied; Press and Wolf 2017), or untied."""

    def __init__(self, network: LSTM, output_layer: GeneralizedSoftmax, *, tied: bool = True) -> None:
        super().__init__()
        self.network = network
        self.output_layer = output_layer
        self.word_vectors = None if tied else nn.Embedding(*output_layer.weight.shape)

    def forward(self, tokens: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Return context vectors `[B, T, d]` of tokens `[B, T]`, and the new state; `lengths` as in `LSTM.forward`."""
        weight = self.output_layer.weight if self.word_vectors is None else self.word_vectors.weight
        outputs, state = self.network(functional.embedding(tokens, weight), state, lengths)
        return outputs, state

    def initial_state(self, batch_size: int) -> State:
        return self.network.initial_state(batch_size)
