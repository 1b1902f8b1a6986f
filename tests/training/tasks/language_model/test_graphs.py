"""Tests of the export graphs in eager mode: what they compute is what the model computes.

Shapes: `B` sequences, `T` time steps, `V` words, `d` hidden size, `L` layers, `K` components.
"""

import pytest
import torch
from torch import Tensor

from training.bundling.graphs import ExportGraph
from training.networks.language_model import RecurrentLanguageModel
from training.networks.lstm import LSTM
from training.softmax import GeneralizedSoftmax
from training.tasks.language_model.graphs import example_inputs, language_model_graphs

V, D, LAYERS = 13, 4, 2


@pytest.fixture(scope="module")
def model() -> RecurrentLanguageModel:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, "lin,log,pow")
    with torch.no_grad():
        layer.weight.normal_()
        layer.prior.normal_()
    return RecurrentLanguageModel(LSTM(D, LAYERS), layer).eval().requires_grad_(False)


def _alone(model: RecurrentLanguageModel, inputs: tuple[Tensor, ...], row: int) -> tuple[Tensor, Tensor, Tensor]:
    """Context vectors `[T, d]` and state `[L, d]` of one sequence without its padding."""
    tokens, lengths, hidden, cell = inputs
    one = slice(row, row + 1)
    outputs, state = model(tokens[one, : lengths[row]], (hidden[:, one], cell[:, one]))
    return outputs[0], state[0][:, 0], state[1][:, 0]


@pytest.mark.parametrize("k", [1, 4, V])
def test_next_words_is_the_top_of_the_distribution(model: RecurrentLanguageModel, k: int) -> None:
    inputs = example_inputs(model, batch_size=4, steps=6, seed=3)
    graph = language_model_graphs(model, unknown=3)["next_words"].module
    values, words, entropy, weights, unknown, hidden, cell = graph(*inputs, torch.tensor(k))
    assert values.shape == words.shape == (4, k)
    for row in range(4):
        outputs, last_hidden, last_cell = _alone(model, inputs, row)
        log_prob = model.output_layer.log_prob(outputs[-1:])[0]
        best = log_prob.sort(descending=True)
        torch.testing.assert_close(values[row], best.values[:k])
        assert words[row].tolist() == best.indices[:k].tolist()
        torch.testing.assert_close(entropy[row], torch.distributions.Categorical(logits=log_prob).entropy())
        torch.testing.assert_close(weights[row], model.output_layer.mixture_weights(outputs[-1:])[0])
        torch.testing.assert_close(unknown[row], log_prob[3])
        torch.testing.assert_close(hidden[:, row], last_hidden)
        torch.testing.assert_close(cell[:, row], last_cell)


def test_score_is_the_log_probability_of_each_target(model: RecurrentLanguageModel) -> None:
    inputs = example_inputs(model, batch_size=4, steps=6, seed=3)
    targets = torch.randint(V, (4, 6), generator=torch.Generator().manual_seed(1))
    scores, hidden, cell = language_model_graphs(model)["score"].module(*inputs, targets)
    assert scores.shape == (4, 6)
    for row, length in enumerate(inputs[1].tolist()):
        outputs, last_hidden, last_cell = _alone(model, inputs, row)
        expected = model.output_layer.log_prob(outputs)[torch.arange(length), targets[row, :length]]
        torch.testing.assert_close(scores[row, :length], expected)
        torch.testing.assert_close(hidden[:, row], last_hidden)
        torch.testing.assert_close(cell[:, row], last_cell)


def test_one_component_has_weight_one() -> None:
    single = RecurrentLanguageModel(LSTM(D, 1), GeneralizedSoftmax(V, D, "log")).eval()
    inputs = example_inputs(single, batch_size=2, steps=3, seed=0)
    weights = language_model_graphs(single)["next_words"].module(*inputs, torch.tensor(1))[3]
    assert weights.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("name", ["next_words", "score"])
def test_the_contract_is_what_the_module_does(model: RecurrentLanguageModel, name: str) -> None:
    """Names bound by the inputs' shapes, and then those of the outputs."""
    graph: ExportGraph = language_model_graphs(model)[name]
    sizes: dict[str, int] = {"k": int(graph.examples[-1])} if name == "next_words" else {}
    for spec, value in zip(graph.contract.inputs, graph.examples, strict=True):
        assert str(value.dtype) == f"torch.{spec.dtype}"
        sizes |= {axis: size for axis, size in zip(spec.shape, value.shape, strict=True) if isinstance(axis, str)}
        assert tuple(sizes.get(axis, axis) for axis in spec.shape) == value.shape
    for spec, value in zip(graph.contract.outputs, graph.module(*graph.examples), strict=True):
        assert str(value.dtype) == f"torch.{spec.dtype}"
        assert tuple(sizes.get(axis, axis) for axis in spec.shape) == value.shape


def test_the_traced_sizes_cannot_be_mistaken_for_others(model: RecurrentLanguageModel) -> None:
    """Batch, steps and k differ from each other and from 1, so that no axis is frozen by accident."""
    for graph in language_model_graphs(model).values():
        tokens = graph.examples[0]
        assert tokens.shape == (3, 7)
        assert graph.examples[1].max() == 7
    assert int(language_model_graphs(model)["next_words"].examples[-1]) == 5


def test_a_tiny_vocabulary_is_traced_with_a_k_it_has() -> None:
    small = RecurrentLanguageModel(LSTM(D, 1), GeneralizedSoftmax(3, D)).eval()
    assert int(language_model_graphs(small)["next_words"].examples[-1]) == 3


def test_example_inputs_fill_the_longest_sequence(model: RecurrentLanguageModel) -> None:
    tokens, lengths, hidden, cell = example_inputs(model, batch_size=5, steps=11, seed=1)
    assert tokens.shape == (5, 11)
    assert lengths[0] == 11
    assert bool(((lengths >= 1) & (lengths <= 11)).all())
    assert bool(((tokens >= 0) & (tokens < V)).all())
    assert hidden.shape == cell.shape == (LAYERS, 5, D)
    assert not torch.equal(hidden, cell)
