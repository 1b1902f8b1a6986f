"""Tests of the recurrent language model: tied word vectors, shapes, inference with lengths."""

import torch

from training.networks.language_model import RecurrentLanguageModel
from training.networks.lstm import LSTM
from training.softmax import GeneralizedSoftmax

V, D, LAYERS = 11, 4, 2


def _model() -> RecurrentLanguageModel:
    torch.manual_seed(0)
    return RecurrentLanguageModel(LSTM(D, LAYERS), GeneralizedSoftmax(V, D, "lin,log"))


def test_word_vectors_are_the_projection_matrix() -> None:
    """V d for words, 4 (d d + d d + d + d) a layer of the LSTM, K (d + d d) for the mixture; nothing else."""
    model = _model()
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == V * D + LAYERS * 4 * (2 * D * D + 2 * D) + 2 * (D + D * D)
    tokens = torch.tensor([[3, 5]])
    expected, _ = model.network(model.output_layer.weight[tokens], model.initial_state(1))
    outputs, _ = model(tokens, model.initial_state(1))
    torch.testing.assert_close(outputs, expected)


def test_untied_word_vectors_are_parameters_of_their_own() -> None:
    torch.manual_seed(0)
    model = RecurrentLanguageModel(LSTM(D, LAYERS), GeneralizedSoftmax(V, D, "lin"), tied=False)
    outputs, _ = model(torch.tensor([[3, 5]]), model.initial_state(1))
    outputs.sum().backward()
    assert model.output_layer.weight.grad is None
    assert model.word_vectors is not None
    gradient = model.word_vectors.weight.grad
    assert gradient is not None
    assert gradient.abs().sum(-1).nonzero().flatten().tolist() == [3, 5]


def test_reading_a_word_trains_its_vector() -> None:
    model = _model()
    outputs, _ = model(torch.tensor([[3, 5]]), model.initial_state(1))
    outputs.sum().backward()
    gradient = model.output_layer.weight.grad
    assert gradient is not None
    assert gradient.abs().sum(-1).nonzero().flatten().tolist() == [3, 5]


def test_a_dropped_word_is_dropped_wherever_it_is_read() -> None:
    torch.manual_seed(0)
    words, probability = 1000, 0.25
    layer = GeneralizedSoftmax(words, D, "lin")
    model = RecurrentLanguageModel(LSTM(D, 1), layer, tied=False, word_dropout=probability)
    read: list[torch.Tensor] = []
    model.network.register_forward_pre_hook(lambda module, arguments: read.append(arguments[0]))
    tokens = torch.arange(words).repeat(2, 1)
    model(tokens, model.initial_state(2))
    model.eval()(tokens, model.initial_state(2))
    trained, used = read
    assert model.word_vectors is not None
    torch.testing.assert_close(used, model.word_vectors.weight.expand(2, -1, -1))
    kept = trained[0].abs().sum(-1) > 0
    assert 0.7 < kept.float().mean() < 0.8
    torch.testing.assert_close(trained[0][kept], used[0][kept] / (1 - probability))
    torch.testing.assert_close(trained[1], trained[0])


def test_shapes() -> None:
    outputs, (hidden, cell) = _model()(torch.zeros(3, 5, dtype=torch.long), _model().initial_state(3))
    assert outputs.shape == (3, 5, D)
    assert hidden.shape == cell.shape == (LAYERS, 3, D)


def test_lengths_reach_the_network() -> None:
    model, tokens = _model().eval(), torch.tensor([[1, 2, 3], [4, 5, 0]])
    _, padded = model(tokens, model.initial_state(2), torch.tensor([3, 2]))
    _, alone = model(tokens[1:, :2], model.initial_state(1))
    torch.testing.assert_close(padded[0][:, 1:], alone[0])
