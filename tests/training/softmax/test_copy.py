"""Tests of copying from the source: hand-computed cases, a computation in numpy, gradients, padding.

Shapes: `B` texts, `T` positions, `S` source tokens, `V` classes, `d` hidden size.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.softmax import GeneralizedSoftmax, History, Source
from training.softmax.components import Copy, build_component

B, T, S, V, D = 3, 4, 5, 7, 4
LAYERS: list[Any] = [
    ["lin", "copy"],
    ["lin", {"name": "copy", "weight": 0.3}],
    ["lin", "2*pow", "copy", "unigram", "copy"],
]
SMOOTHING = {"label_smoothing": 0.1}


def _layer(kernels: Any, num_classes: int = V, **options: Any) -> GeneralizedSoftmax:
    """A float64 layer whose parameters are all random."""
    layer = GeneralizedSoftmax(num_classes, D, kernels, **options).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer


def _example() -> tuple[Tensor, Tensor, Source]:
    """Hidden states `[B, T, d]`, targets `[B, T]`, sources of 5, 3 and 1 tokens."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    states = torch.randn(B, S, D, generator=generator, dtype=torch.float64)
    words = torch.randint(V - 2, (B, S), generator=generator)
    visible = torch.arange(S) < torch.tensor([5, 3, 1])[:, None]
    targets = torch.randint(V, (B, T), generator=generator)
    targets[:, 0] = V - 1  # in no source
    return hidden, targets, Source(words, states, visible)


# ---- hand-computed ----------------------------------------------------------------------------------------


def _copied() -> tuple[Tensor, Source, Copy]:
    """One position, h = 1, q = 2 h + 1 = 3, of the source 1 2 1 and padding; exp(q . e) = 1, 2, 5, 9: d = 1."""
    states = torch.tensor([[0.0, math.log(2) / 3, math.log(5) / 3, math.log(9) / 3]], dtype=torch.float64)[..., None]
    source = Source(torch.tensor([[1, 2, 1, 0]]), states, torch.tensor([[True, True, True, False]]))
    copy = build_component("copy", 4, 1).double()
    assert isinstance(copy, Copy)
    with torch.no_grad():
        copy.query.fill_(2.0)
        copy.offset.fill_(1.0)
    return torch.ones(1, 1, 1, dtype=torch.float64), source, copy


def test_copy_by_hand() -> None:
    """Word 1 has (1 + 5) / 8, word 2 2 / 8; the mass is the mean 8 / 3, less the factor of a new component."""
    hidden, source, copy = _copied()
    found = copy.distribution(hidden, source)
    torch.testing.assert_close(found.log_prob(4).exp(), torch.tensor([[0, 6 / 8, 2 / 8, 0]], dtype=torch.float64))
    assert found.log_mass.item() == pytest.approx(math.log(8 / 3 / 100), rel=1e-6)
    assert found.target_log_prob(torch.tensor([1])).item() == pytest.approx(math.log(6 / 8))
    for absent in (0, 3):
        assert found.target_log_prob(torch.tensor([absent])).item() == -math.inf


def test_the_weight_depends_on_what_is_pointed_at() -> None:
    """With the gate 3, the mean of 3 e at probabilities 1/8, 2/8 and 5/8 is added, whatever the temperature."""
    hidden, source, copy = _copied()
    assert copy.gate is not None
    with torch.no_grad():
        copy.gate.fill_(3.0)
    expected = math.log(8 / 3 / 100) + (2 * math.log(2) + 5 * math.log(5)) / 8
    for temperature in (1.0, 2.0):
        found = copy.distribution(hidden, source, temperature)
        assert found.log_mass.item() == pytest.approx(expected, rel=1e-6)


def test_a_mixture_that_copies_by_hand() -> None:
    """lin has 1/4 of each class, copying the weight 0.2."""
    hidden, source, _ = _copied()
    layer = GeneralizedSoftmax(4, 1, ["lin", {"name": "copy", "weight": 0.2}]).double()
    with torch.no_grad():
        layer.weight.zero_()
        for name, parameter in layer.others[0].named_parameters():
            parameter.fill_({"query": 2.0, "offset": 1.0}[name])
    expected = torch.tensor([0.2, 0.2 + 0.2 * 6 / 8, 0.2 + 0.2 * 2 / 8, 0.2], dtype=torch.float64)
    torch.testing.assert_close(layer.log_prob(hidden, history=source).exp()[0, 0], expected)
    even = torch.full((4,), 0.25, dtype=torch.float64)
    torch.testing.assert_close(layer.log_prob(hidden).exp()[0, 0], even)  # without a source


def test_a_new_component_has_little_weight() -> None:
    torch.manual_seed(0)
    layer, states = GeneralizedSoftmax(50, 64, ["lin", "copy"]), torch.nn.LayerNorm(64)
    hidden, encoded = states(torch.randn(8, 6, 64)), states(torch.randn(8, 9, 64))
    source = Source(torch.zeros(8, 9, dtype=torch.long), encoded, torch.ones(8, 9, dtype=torch.bool))
    weights = layer.mixture_weights(hidden, source)[..., 1]
    assert 0.002 < weights.min() < weights.max() < 0.05


# ---- reference --------------------------------------------------------------------------------------------


def _array(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach().numpy()


def _expected(hidden: Tensor, source: Source, layer: GeneralizedSoftmax) -> NDArray[np.float64]:
    """Probabilities `[B, T, V]` of a layer of `lin` and `copy`, position by position."""
    copy, weight, prior = layer.others[0], _array(layer.weight), _array(layer.prior)
    assert isinstance(copy, Copy)
    assert copy.gate is not None
    assert copy.log_factor is not None
    found = np.zeros((B, T, V))
    for b, t in np.ndindex(B, T):
        h, length = _array(hidden[b, t]), int(source.visible[b].sum())
        exponentials = np.exp(_array(source.states[b, :length]) @ (h @ _array(copy.query) + _array(copy.offset)))
        copied = np.bincount(source.words[b, :length].numpy(), exponentials, V) / exponentials.sum()
        spoken = np.exp(weight @ h) / np.exp(weight @ h).sum()
        pointed = exponentials / exponentials.sum() @ _array(source.states[b, :length])
        factor = np.exp(pointed @ _array(copy.gate) + copy.log_factor.item())
        odds = np.exp(h @ prior) * [1, exponentials.mean() * factor]
        found[b, t] = (odds[0] * spoken + odds[1] * copied) / odds.sum()
    return found


@torch.no_grad()
def test_distributions_are_those_of_numpy() -> None:
    layer, (hidden, targets, source) = _layer(["lin", "copy"]), _example()
    expected = torch.from_numpy(_expected(hidden, source, layer))
    torch.testing.assert_close(layer.log_prob(hidden, history=source).exp(), expected)
    chosen = expected.log().gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(layer.target_log_prob(hidden, targets, history=source), chosen)
    torch.testing.assert_close(layer.loss(hidden, targets, history=source), -chosen.sum())
    smooth = layer.loss(hidden, targets, history=source, **SMOOTHING)
    torch.testing.assert_close(smooth, -(0.9 * chosen + 0.1 * expected.log().mean(-1)).sum())


@pytest.mark.parametrize("kernels", LAYERS)
@torch.no_grad()
def test_all_functions_agree(kernels: Any) -> None:
    layer, (hidden, targets, source) = _layer(kernels), _example()
    log_prob = layer.log_prob(hidden, history=source)
    torch.testing.assert_close(log_prob.logsumexp(-1), torch.zeros(B, T, dtype=torch.float64), rtol=0, atol=1e-12)
    chosen = log_prob.gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(layer.target_log_prob(hidden, targets, history=source), chosen)
    values, classes = layer.top_k(hidden, V, history=source)
    torch.testing.assert_close(values, log_prob.gather(-1, classes))
    weights = layer.mixture_weights(hidden, source)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64))


@pytest.mark.parametrize("options", [{}, SMOOTHING, {"sparse_k": 3, **SMOOTHING}], ids=str)
@pytest.mark.parametrize("kernels", LAYERS)
def test_gradients_are_those_of_differences(kernels: Any, options: dict[str, Any]) -> None:
    layer, (hidden, targets, source) = _layer(kernels, **options), _example()

    def loss(hidden: Tensor, states: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(dict(layer.named_parameters()), parameters, strict=True))
        arguments = {"history": replace(source, states=states)}
        found: Tensor = torch.func.functional_call(layer, named, (hidden, targets), arguments)
        return found

    inputs = [each.detach().requires_grad_() for each in (hidden, source.states, *layer.parameters())]
    assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize(
    ("kernels", "options"),
    [
        (["lin", "copy"], {}),
        (["pow", "cache", "copy"], {"bias": True, "softcap": 2.0}),
        (["lin", "pow", {"name": "copy", "weight": 0.3}], {}),
    ],
)
def test_smoothing_of_many_classes_mixes_those_of_the_source_alone(kernels: Any, options: dict[str, Any]) -> None:
    """With so many classes that the pairs of source tokens are fewer; repeated tokens, padding, no token at all."""
    layer = _layer(kernels, **options, num_classes=40)
    hidden, targets, source = _example()
    words = torch.tensor([[3, 39, 3, 3, 39], [5, 5, 6, 7, 8], [9, 9, 9, 9, 9]])
    source = replace(source, words=words, visible=source.visible & (torch.arange(B) < 2)[:, None])
    given = [each.detach().requires_grad_() for each in (hidden, source.states, *layer.parameters())]

    def loss(hidden: Tensor, states: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(dict(layer.named_parameters()), parameters, strict=True))
        arguments = {"history": replace(source, states=states), "reduction": "none", "temperature": 1.5, **SMOOTHING}
        found: Tensor = torch.func.functional_call(layer, named, (hidden, targets), arguments)
        return found

    log_prob = layer.log_prob(hidden, history=source, temperature=1.5)
    chosen = log_prob.gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(loss(*given), -(0.9 * chosen + 0.1 * log_prob.mean(-1)))
    assert torch.autograd.gradcheck(loss, given)
    gradients = torch.autograd.grad(loss(*given).sum(), given, create_graph=True)
    assert all(bool(each.isfinite().all()) for each in gradients)

    def norm(*inputs: Tensor) -> Tensor:
        """Return a gradient penalty, whose gradient has second derivatives."""
        return torch.autograd.grad(loss(*inputs).sum(), inputs[0], create_graph=True)[0].square().sum()

    assert torch.autograd.gradcheck(norm, given, atol=1e-4)


# ---- padding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", LAYERS)
def test_padding_has_no_influence_and_no_gradient(kernels: Any) -> None:
    """Whatever stands behind the end of a source, and where a source has no token at all."""
    layer, (hidden, targets, source) = _layer(kernels, **SMOOTHING), _example()
    nothing = source.visible & (torch.arange(B) > 0)[:, None]
    states = source.states.clone().requires_grad_()
    found = replace(source, states=states, visible=nothing)
    other = replace(
        found,
        words=source.words.masked_fill(~nothing, 0),
        states=source.states.masked_fill(~nothing[..., None], 1e4),
    )
    loss = layer.loss(hidden, targets, history=found)
    torch.testing.assert_close(layer.loss(hidden, targets, history=other), loss, rtol=0, atol=0)
    loss.backward()
    gradients = [states.grad, *(each.grad for each in layer.parameters())]
    assert all(bool(each.isfinite().all()) for each in gradients if each is not None)
    assert states.grad is not None
    assert states.grad[~nothing].eq(0).all()
    assert layer.mixture_weights(hidden, found)[0, :, 1 if len(layer.kernels) == 1 else 3].eq(0).all()


@torch.no_grad()
def test_a_short_source_has_the_probabilities_that_it_has_without_padding() -> None:
    layer, (hidden, _, source) = _layer(["lin", "copy"]), _example()
    alone = Source(source.words[1:2, :3], source.states[1:2, :3], source.visible[1:2, :3])
    expected = layer.log_prob(hidden[1:2], history=alone)
    torch.testing.assert_close(layer.log_prob(hidden, history=source)[1:2], expected)


def test_ignored_targets_do_not_count() -> None:
    layer, (hidden, targets, source) = _layer(["lin", "copy"], **SMOOTHING), _example()
    losses = layer.loss(hidden, targets, history=source, reduction="none")
    targets[1, 2:] = -100
    kept = losses.masked_fill(targets == -100, 0.0)
    torch.testing.assert_close(layer.loss(hidden, targets, history=source, reduction="none"), kept)
    torch.testing.assert_close(layer.loss(hidden, targets, history=source), kept.sum())


# ---- contexts ---------------------------------------------------------------------------------------------


def test_a_source_of_other_hidden_states_is_refused() -> None:
    layer, (hidden, _, source) = _layer(["lin", "copy"]), _example()
    for other in (hidden[:1], hidden.flatten(0, 1), hidden[..., :3]):
        with pytest.raises(ValueError, match=r"source|hidden"):
            layer.log_prob(other, history=source)
    with pytest.raises(ValueError, match=r"source\.states must be \[3, 5, 4\]"):
        layer.log_prob(hidden, history=replace(source, states=source.states[:, 1:]))


@torch.no_grad()
def test_components_of_another_context_have_no_weight() -> None:
    layer, (hidden, targets, source) = _layer(["lin", "copy", "cache"]), _example()
    states = torch.cat([hidden[:, :1], hidden], dim=1)
    seen = torch.ones(B, T, T, dtype=torch.bool).tril(-1)
    seen[:, 0, 0] = True
    by_context = [layer.mixture_weights(hidden, each) for each in (source, History(targets, states, seen))]
    assert [each.gt(0).all((0, 1)).tolist() for each in by_context] == [[True, True, False], [True, False, True]]
    assert layer.reads_source
    assert not GeneralizedSoftmax(V, D, ["lin", "cache"]).reads_source
