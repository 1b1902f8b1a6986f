"""Tests of the LSTM: padded sequences against sequences alone, states, dropout, the custom operator.

Shapes: `B` sequences, `T` time steps, `L` layers, `d` hidden size.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training.device import native_bfloat16
from training.networks.lstm import LSTM, _packed_lstm, detach, padded_lstm

D, LAYERS = 4, 2


def _network(dropout: float = 0.0, weight_dropout: float = 0.0, *, locked_dropout: bool = False) -> LSTM:
    torch.manual_seed(0)
    network = LSTM(D, LAYERS, dropout, weight_dropout=weight_dropout, locked_dropout=locked_dropout)
    return network.double().eval().requires_grad_(False)


def _inputs(lengths: list[int]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Inputs `[B, T, d]` and a state that is not zero."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(len(lengths), max(lengths), D, generator=generator, dtype=torch.float64)
    hidden, cell = torch.randn(2, LAYERS, len(lengths), D, generator=generator, dtype=torch.float64)
    return inputs, (hidden, cell)


def _operator_arguments(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
    inputs, (hidden, cell) = _inputs(lengths)
    weights = [weight for weight in _network().lstm._flat_weights if weight is not None]
    return inputs, torch.tensor(lengths), hidden, cell, weights


def test_one_step_by_hand() -> None:
    """d = 1, all weights 0 but the cell gate's input weight 1: every other gate is sigmoid(0) = 1/2.

    Input 2, state h = 0, c = 1: c' = 1/2 * 1 + 1/2 tanh 2, h' = 1/2 tanh c'.
    """
    network = LSTM(1, 1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.lstm.weight_ih_l0[2] = 1.0  # torch's order: input, forget, cell, output
    outputs, (hidden, cell) = network(torch.tensor([[[2.0]]]), (torch.zeros(1, 1, 1), torch.ones(1, 1, 1)))
    expected = 0.5 + 0.5 * math.tanh(2)
    assert cell.item() == pytest.approx(expected)
    assert outputs.item() == hidden.item() == pytest.approx(0.5 * math.tanh(expected))


@settings(max_examples=20)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_padded_sequences_run_as_if_alone(lengths: list[int]) -> None:
    network, (inputs, (hidden, cell)) = _network(), _inputs(lengths)
    outputs, last = network(inputs, (hidden, cell), torch.tensor(lengths))
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone, state = network(inputs[one, :length], (hidden[:, one], cell[:, one]))
        torch.testing.assert_close(outputs[one, :length], alone)
        torch.testing.assert_close((last[0][:, one], last[1][:, one]), state)


def test_what_lies_behind_a_length_changes_nothing() -> None:
    network, (inputs, state) = _network(), _inputs([2, 5])
    lengths, spoilt = torch.tensor([2, 5]), inputs.clone()
    spoilt[0, 2:] = 1e6
    (clean, last), (other, other_last) = network(inputs, state, lengths), network(spoilt, state, lengths)
    torch.testing.assert_close(other[0, :2], clean[0, :2], rtol=0, atol=0)
    torch.testing.assert_close(other_last, last, rtol=0, atol=0)


def test_a_sequence_in_two_parts_is_the_sequence() -> None:
    network, (inputs, state) = _network(), _inputs([6, 6])
    whole, last = network(inputs, state)
    first, between = network(inputs[:, :2], state)
    second, last_of_parts = network(inputs[:, 2:], between)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(last_of_parts, last)


@pytest.mark.parametrize("lengths", [[3], [1], [2, 5, 3], [4, 4]], ids=str)
def test_the_operator_equals_the_function_it_wraps(lengths: list[int]) -> None:
    arguments = _operator_arguments(lengths)
    torch.testing.assert_close(padded_lstm(*arguments), _packed_lstm(*arguments), rtol=0, atol=0)


def test_the_operator_is_registered_soundly() -> None:
    """Schema, autograd registration, fake tensors (shapes without values), dynamic shapes."""
    torch.library.opcheck(padded_lstm, _operator_arguments([2, 5, 3]))


def test_state_starts_at_zero() -> None:
    network = _network()
    assert network.state_shape == (LAYERS, D)
    for part in network.initial_state(3):
        assert part.shape == (LAYERS, 3, D)
        assert part.dtype == torch.float64
        assert not part.any()


def test_dropout_is_on_in_training_only() -> None:
    network, (inputs, state) = _network(dropout=0.5), _inputs([3])
    assert torch.equal(network(inputs, state)[0], network(inputs, state)[0])
    network.train()
    assert not torch.equal(network(inputs, state)[0], network(inputs, state)[0])


def test_dropout_is_on_the_outputs_too() -> None:
    network, (inputs, state) = _network(dropout=0.5).train(), _inputs([50])
    outputs, _ = network(inputs, state)
    assert (outputs == 0).double().mean().item() == pytest.approx(0.5, abs=0.2)


def test_layer_after_layer_is_the_lstm() -> None:
    """Locked dropout computes the layers one after the other; with probability 0 it drops nothing."""
    plain, locked, (inputs, state) = _network().train(), _network(locked_dropout=True).train(), _inputs([3, 3])
    torch.testing.assert_close(locked(inputs, state), plain(inputs, state))


def test_locked_dropout_drops_the_same_elements_at_all_steps() -> None:
    network, (inputs, state) = _network(0.5, locked_dropout=True).train(), _inputs([50] * 20)
    dropped = network(inputs, state)[0] == 0
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert dropped.double().mean().item() == pytest.approx(0.5, abs=0.2)


def test_weight_dropout_drops_weights_between_states_alone() -> None:
    """With all of them dropped, nothing but the cell remembers: the result is that of zero weights."""
    dropping, zero, (inputs, state) = _network(weight_dropout=1.0).train(), _network(), _inputs([4, 4])
    for name, weight in zero.lstm.named_parameters():
        if name.startswith("weight_hh"):
            weight.zero_()
    torch.testing.assert_close(dropping(inputs, state), zero(inputs, state))
    torch.testing.assert_close(dropping.eval()(inputs, state), _network()(inputs, state))


def test_weight_dropout_is_the_same_at_all_steps_of_a_batch_and_has_gradients() -> None:
    network, (inputs, state) = _network(weight_dropout=0.5).train().requires_grad_(True), _inputs([4, 4])
    network(inputs, state)[0].sum().backward()
    gradients = network.lstm.weight_hh_l0.grad
    assert gradients is not None
    assert (gradients == 0).double().mean().item() == pytest.approx(0.5, abs=0.3)


@pytest.mark.parametrize("locked_dropout", [False, True])
@pytest.mark.parametrize("native", [False, True])
def test_bfloat16_is_of_the_whole_recurrence_where_it_is_native(
    native: bool, locked_dropout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States stay float32, and gradients agree with those of float32 to 2 %."""
    if native and not native_bfloat16(torch.device("cpu")):
        pytest.skip("the processor has no bfloat16")
    monkeypatch.setattr("training.networks.lstm.native_bfloat16", lambda device: native)
    network = _network(locked_dropout=locked_dropout).float().train().requires_grad_(True)
    inputs, (hidden, cell) = _inputs([5, 5])
    inputs, state = inputs.float(), (hidden.float(), cell.float())
    gradients = []
    for narrow in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            outputs, last = network(inputs, state)
        assert (outputs.dtype == torch.bfloat16) == (narrow and native)
        assert [part.dtype for part in last] == [torch.float32] * 2
        loss = outputs.float().square().sum() + last[1].square().sum()
        gradients.append(torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(network.parameters()))]))
    error = torch.linalg.vector_norm(gradients[1] - gradients[0]) / torch.linalg.vector_norm(gradients[0])
    assert (error > 0) == native
    assert error < 0.02


@pytest.mark.filterwarnings("error")
def test_one_layer_with_dropout_does_not_warn() -> None:
    """torch warns where dropout between layers has no layer to come after."""
    assert LSTM(D, 1, 0.5).lstm.dropout == 0


def test_detach_keeps_values_and_cuts_history() -> None:
    state = (torch.ones(1, 1, 1, requires_grad=True) * 2, torch.ones(1, 1, 1, requires_grad=True) * 3)
    hidden, cell = detach(state)
    assert (hidden.item(), cell.item()) == (2, 3)
    assert not hidden.requires_grad
    assert not cell.requires_grad
