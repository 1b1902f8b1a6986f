"""A recurrent language model: word vectors, LSTM, generalized softmax.

Shapes: `B` sequences, `T` time steps, `V` words, `d` hidden size, `L` layers.
"""

from torch import Tensor
from torch.nn import functional

from training.networks.lstm import LSTM, State
from training.networks.softmax_model import SoftmaxModel
from training.softmax import GeneralizedSoftmax

__all__ = ["RecurrentLanguageModel"]


class RecurrentLanguageModel(SoftmaxModel):
    """Word vectors are the rows of the output layer's projection matrix (tied; Press and Wolf 2017)."""

    def __init__(self, network: LSTM, output_layer: GeneralizedSoftmax) -> None:
        super().__init__()
        self.network = network
        self.output_layer = output_layer

    def forward(self, tokens: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Return context vectors `[B, T, d]` of tokens `[B, T]`, and the new state; `lengths` as in `LSTM.forward`."""
        outputs, state = self.network(functional.embedding(tokens, self.output_layer.weight), state, lengths)
        return outputs, state

    def initial_state(self, batch_size: int) -> State:
        return self.network.initial_state(batch_size)
