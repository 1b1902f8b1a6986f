"""The recurrent network of the kernel paper's language models.

Shapes: `B` sequences, `T` time steps, `L` layers, `d` hidden size.
"""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

__all__ = ["LSTM", "State", "detach"]

State = tuple[Tensor, Tensor]
"""Hidden and cell state, each `[L, B, d]`."""


class LSTM(nn.Module):
    """Stacked LSTM with dropout on its input, between layers and on its output (Zaremba et al. 2014)."""

    def __init__(self, hidden_size: int, num_layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(hidden_size, hidden_size, num_layers, batch_first=True, dropout=between)
        self.dropout = nn.Dropout(dropout)

    @property
    def state_shape(self) -> tuple[int, int]:
        """`(L, d)`."""
        return self.lstm.num_layers, self.lstm.hidden_size

    def initial_state(self, batch_size: int) -> State:
        layers, size = self.state_shape
        zeros = self.lstm.weight_ih_l0.new_zeros(layers, batch_size, size)
        return zeros, zeros

    def forward(self, inputs: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """`[B, T, d]` -> `[B, T, d]` and the state after each sequence's last valid step.

        `lengths` `[B]`, on the CPU, counts the valid steps; what lies behind them is padding.
        Without it all steps are valid.
        """
        inputs = self.dropout(inputs)
        if lengths is None:
            outputs, state = self.lstm(inputs, state)
        else:
            packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
            packed_outputs, state = self.lstm(packed, state)
            outputs, _ = pad_packed_sequence(packed_outputs, batch_first=True, total_length=inputs.shape[1])
        return self.dropout(outputs), state


def detach(state: State) -> State:
    """The same state with its history cut off, for truncated back-propagation through time."""
    return state[0].detach(), state[1].detach()

