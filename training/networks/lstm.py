"""The recurrent network of the kernel paper's language models.

Shapes: `B` sequences, `T` time steps, `L` layers, `d` hidden size.
"""

import warnings

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from training.device import native_bfloat16
from training.networks.dropout import Dropout

__all__ = ["LSTM", "PADDED_LSTM", "State", "detach", "padded_lstm"]

# Weights with dropout are new at each call, and cuDNN has to copy them.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")

State = tuple[Tensor, Tensor]
"""Hidden and cell state, each `[L, B, d]`."""


class LSTM(nn.Module):
    """Stacked LSTM with dropout on its input, between layers and on its output (Zaremba et al. 2014)."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 2,
        dropout: float = 0.0,
        input_dropout: float | None = None,
        weight_dropout: float = 0.0,
        *,
        locked_dropout: bool = False,
    ) -> None:
        """`input_dropout` is that of the input alone, `dropout` without it.

        `weight_dropout` is that of the weights between the states of two steps, the same weights for all steps
        (DropConnect; Merity et al. 2018). With `locked_dropout` so are the dropped elements of the vectors (Gal and
        Ghahramani 2016).
        """
        super().__init__()
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(hidden_size, hidden_size, num_layers, batch_first=True, dropout=between)
        self.dropout = Dropout(dropout, locked=locked_dropout)
        self.input_dropout = Dropout(dropout if input_dropout is None else input_dropout, locked=locked_dropout)
        self.weight_dropout = Dropout(weight_dropout)
        # Without, a CPU lacks the recurrent kernel of bfloat16 altogether.
        self._bfloat16_on_cpu = native_bfloat16(torch.device("cpu"))

    @property
    def state_shape(self) -> tuple[int, int]:
        """Return `(L, d)`."""
        return self.lstm.num_layers, self.lstm.hidden_size

    def initial_state(self, batch_size: int) -> State:
        layers, size = self.state_shape
        zeros = next(self.lstm.parameters()).new_zeros(layers, batch_size, size)
        return zeros, zeros

    def forward(self, inputs: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """`[B, T, d]` -> `[B, T, d]` and the state after each sequence's last valid step.

        `lengths` `[B]`, on the CPU, counts the valid steps; what lies behind them is padding, and the longest
        sequence must have none. With `lengths` there is no dropout between layers: it is for inference.
        All steps are valid without it.
        """
        inputs = self.input_dropout(inputs)
        if lengths is None:
            with torch.autocast("cpu", enabled=torch.is_autocast_enabled("cpu") and self._bfloat16_on_cpu):
                by_layer = self.training and (self.dropout.locked or self.weight_dropout.p > 0)
                outputs, (hidden, cell) = self._by_layer(inputs, state) if by_layer else self.lstm(inputs, state)
            state = hidden.to(state[0].dtype), cell.to(state[1].dtype)  # autocast narrows them
        else:
            run = padded_lstm if torch.compiler.is_exporting() else _packed_lstm
            outputs, *last = run(inputs, lengths, *state, self._weights())
            state = (last[0], last[1])
        return self.dropout(outputs), state

    def _by_layer(self, outputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Compute one layer after the other: `nn.LSTM` has neither of the dropouts that need it."""
        states, all_weights = [], self._weights()
        for layer, (hidden, cell) in enumerate(zip(*(part.split(1) for part in state), strict=True)):
            if layer > 0:
                outputs = self.dropout(outputs)
            of_inputs, of_states, *biases = all_weights[4 * layer : 4 * layer + 4]
            weights = [of_inputs, self.weight_dropout(of_states), *biases]
            # has_biases, num_layers, dropout, train, bidirectional, batch_first
            flags = (True, 1, 0.0, True, False, True)
            outputs, *last = torch._VF.lstm(outputs, (hidden, cell), weights, *flags)
            states.append(last)
        hidden, cell = (torch.cat(parts) for parts in zip(*states, strict=True))
        return outputs, (hidden, cell)

    def _weights(self) -> list[Tensor]:
        """Return four weights a layer, as `nn.LSTM` orders them: of inputs, of states, their biases."""
        return [weight for weight in self.lstm._flat_weights if weight is not None]


def _packed_lstm(
    inputs: Tensor, lengths: Tensor, hidden: Tensor, cell: Tensor, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute an LSTM over padded sequences; weights are four a layer, as `nn.LSTM` orders them."""
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    order, back = packed.sorted_indices, packed.unsorted_indices
    assert order is not None
    assert back is not None
    state = (hidden.index_select(1, order), cell.index_select(1, order))
    # has_biases, num_layers, dropout, train, bidirectional
    flags = (True, len(weights) // 4, 0.0, False, False)
    data, hidden, cell = torch._VF.lstm(packed.data, packed.batch_sizes, state, weights, *flags)
    outputs, _ = pad_packed_sequence(PackedSequence(data, packed.batch_sizes, order, back), batch_first=True)
    return outputs, hidden.index_select(1, back), cell.index_select(1, back)


padded_lstm = torch.library.custom_op("softserve::padded_lstm", _packed_lstm, mutates_args=())
"""The same as one operator, which exporters translate as a whole (ONNX has an LSTM operator that takes lengths)."""


@padded_lstm.register_fake
def _padded_lstm_shapes(
    inputs: Tensor, lengths: Tensor, hidden: Tensor, cell: Tensor, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(inputs), torch.empty_like(hidden), torch.empty_like(cell)


PADDED_LSTM = torch.ops.softserve.padded_lstm.default
"""The operator that exporters find in a traced program in place of `padded_lstm`."""


def detach(state: State) -> State:
    """Return the state with its history cut off, for truncated back-propagation through time."""
    return state[0].detach(), state[1].detach()
