"""Tests of mixture components that are not kernels: hand-computed cases, a plain reference, gradients, invariants.

Shapes: `B` texts, `T` positions, `E` words of the history, `V` classes, `d` hidden size.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from training.softmax import GeneralizedSoftmax
from training.softmax.components import (
    COMPONENTS,
    Attention,
    Cache,
    Component,
    History,
    Memory,
    Pointer,
    Shared,
    Unigram,
    build_component,
)

LAYERS: list[Any] = [
    ["lin", "cache"],
    ["lin", {"name": "cache", "theta": 0.7, "window": 3, "weight": 0.2}],
    ["lin", "pointer"],
    ["lin", "unigram"],
    ["2*lin", "pow", {"name": "pointer", "window": None}, {"name": "cache", "weight": 0.1}, "unigram"],
]


def _layer(kernels: Any, *, classes: int = 7, size: int = 4, **options: Any) -> GeneralizedSoftmax:
    """A float64 layer whose parameters are all random."""
    layer = GeneralizedSoftmax(classes, size, kernels, **options).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer


def _text(batch: int = 2, steps: int = 6, *, classes: int = 7, size: int = 4) -> tuple[Tensor, Tensor]:
    """Hidden states `[B, T, d]` and their next words `[B, T]`."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(batch, steps, size, generator=generator, dtype=torch.float64)
    return hidden, torch.randint(classes, (batch, steps), generator=generator)


def _history(hidden: Tensor, words: Tensor) -> History:
    return Memory.empty(hidden).read(hidden, words, None)[0]


# ---- hand-computed ----------------------------------------------------------------------------------------


def _two_words() -> tuple[Tensor, History]:
    """One position, h = 2, after the words 1, 2, 1 with states 0, ln 2 / 2, ln 4 / 2 before them: d = 1."""
    states = torch.tensor([[0.0, math.log(2) / 2, math.log(4) / 2, 2.0]], dtype=torch.float64)[..., None]
    words = torch.tensor([[1, 2, 1]])
    return states[:, -1:], History(words, states, torch.ones(1, 1, 3, dtype=torch.bool))


def test_cache_by_hand() -> None:
    """exp(theta h . h_i) = 1, 2, 4: word 1 has 5/7, word 2 2/7, word 0 nothing."""
    hidden, history = _two_words()
    cache = build_component("cache", 3, 1, theta=1.0)
    found = cache.distribution(hidden, history)
    torch.testing.assert_close(found.log_prob(3).exp(), torch.tensor([[0, 5 / 7, 2 / 7]], dtype=torch.float64))
    assert found.log_prob(3)[0, 0] == -math.inf
    assert found.target_log_prob(torch.tensor([1])).item() == pytest.approx(math.log(5 / 7))
    assert found.target_log_prob(torch.tensor([0])).item() == -math.inf
    assert found.log_mass.item() == 0


def test_a_window_is_of_the_last_words() -> None:
    hidden, history = _two_words()
    found = build_component("cache", 3, 1, theta=1.0, window=2).distribution(hidden, history)
    torch.testing.assert_close(found.log_prob(3).exp(), torch.tensor([[0, 4 / 6, 2 / 6]], dtype=torch.float64))


def test_pointer_by_hand() -> None:
    """With q = 2/3, the states after the words weigh exp(ln 2 / 3), exp(ln 4 / 3), exp(4 / 3); word 1 has the outer."""
    hidden, history = _two_words()
    pointer = build_component("pointer", 3, 1).double()
    assert isinstance(pointer, Pointer)
    with torch.no_grad():
        pointer.query.zero_()
        pointer.offset.fill_(math.atanh(2 / 3))
    weights = [2 ** (1 / 3), 4 ** (1 / 3), math.exp(4 / 3)]
    found = pointer.distribution(hidden, history)
    expected = torch.tensor([[0, weights[0] + weights[2], weights[1]]], dtype=torch.float64) / sum(weights)
    torch.testing.assert_close(found.log_prob(3).exp(), expected)
    assert found.log_mass.item() == pytest.approx(math.log(sum(weights) / 3))


def test_a_mixture_with_a_cache_by_hand() -> None:
    """lin has the probabilities (1/2, 1/4, 1/4), the cache (0, 5/7, 2/7) and the weight 0.3."""
    hidden, history = _two_words()
    layer = GeneralizedSoftmax(3, 1, ["lin", {"name": "cache", "theta": 1.0, "weight": 0.3}], bias=True).double()
    with torch.no_grad():
        layer.weight.zero_()
        assert layer.bias is not None
        layer.bias.copy_(torch.tensor([math.log(2), 0.0, 0.0]))
    expected = torch.tensor([0.7 * 0.5, 0.7 * 0.25 + 0.3 * 5 / 7, 0.7 * 0.25 + 0.3 * 2 / 7], dtype=torch.float64)
    torch.testing.assert_close(layer.log_prob(hidden, history=history).exp()[0, 0], expected)
    torch.testing.assert_close(
        layer.mixture_weights(hidden, history)[0, 0], torch.tensor([0.7, 0.3], dtype=torch.float64)
    )
    torch.testing.assert_close(layer.log_prob(hidden).exp()[0, 0], torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64))
    assert layer.mixture_weights(hidden).tolist() == [[[1.0, 0.0]]]


# ---- reference --------------------------------------------------------------------------------------------


def _by_places(component: Component, hidden: Tensor, history: History, batch: int, step: int) -> tuple[Tensor, float]:
    """The probabilities `[V]` of a component by a loop over places, and the factor of its weight."""
    size = 7
    if isinstance(component, Unigram):
        return torch.softmax(component.logits, dim=-1), 1.0
    places = history.visible[batch, step].nonzero()[:, 0].tolist()
    places = places if component.window is None else places[-component.window :]
    probabilities = torch.zeros(size, dtype=torch.float64)
    if not places:
        return probabilities, 0.0
    h = hidden[batch, step]
    if isinstance(component, Cache):
        weights = [math.exp(component.theta * float(h @ history.states[batch, place])) for place in places]
    else:
        assert isinstance(component, Pointer)
        query = torch.tanh(h @ component.query + component.offset)
        weights = [math.exp(float(query @ history.states[batch, place + 1])) for place in places]
    for place, weight in zip(places, weights, strict=True):
        probabilities[history.words[batch, place]] += weight / sum(weights)
    return probabilities, sum(weights) / len(weights) if component.name == "pointer" else 1.0


def _expected(layer: GeneralizedSoftmax, hidden: Tensor, history: History) -> tuple[Tensor, Tensor]:
    """Probabilities `[B, T, V]` and weights `[B, T, K]` by loops over texts, positions and places."""
    kernels = [torch.softmax(score, dim=-1) for score in layer.scores(hidden)]
    others = layer.other_components()
    found, shares = torch.zeros(*hidden.shape[:2], 7, dtype=torch.float64), []
    for batch in range(hidden.shape[0]):
        for step in range(hidden.shape[1]):
            parts = [_by_places(each, hidden, history, batch, step) for each in others]
            constant = [
                None if each.weight is None else each.weight * (part[1] > 0)
                for each, part in zip(others, parts, strict=True)
            ]
            rest = 1 - sum(each for each in constant if each is not None)
            learnt = [1.0] * len(kernels) + [
                part[1] for part, each in zip(parts, constant, strict=True) if each is None
            ]
            if hasattr(layer, "prior"):
                exponentials = torch.exp(hidden[batch, step] @ layer.prior).tolist()
                learnt = [a * b for a, b in zip(learnt, exponentials, strict=True)]
            values = iter(rest * each / sum(learnt) for each in learnt)
            weights = [next(values) if each is None else each for each in [None] * len(kernels) + constant]
            distributions = [kernel[batch, step] for kernel in kernels] + [part[0] for part in parts]
            found[batch, step] = sum(w * p for w, p in zip(weights, distributions, strict=True))
            shares.append(torch.tensor(weights, dtype=torch.float64))
    return found, torch.stack(shares).view(*hidden.shape[:2], -1)


@pytest.mark.parametrize("kernels", LAYERS)
@torch.no_grad()
def test_distributions_are_those_of_loops_over_places(kernels: Any) -> None:
    layer = _layer(kernels)
    hidden, words = _text()
    history = _history(hidden, words)
    expected, weights = _expected(layer, hidden, history)
    log_prob = layer.log_prob(hidden, history=history)
    torch.testing.assert_close(log_prob.exp(), expected)
    torch.testing.assert_close(layer.mixture_weights(hidden, history), weights)
    torch.testing.assert_close(log_prob.logsumexp(-1), torch.zeros(2, 6, dtype=torch.float64), rtol=0, atol=1e-12)
    chosen = log_prob.gather(-1, words[..., None])[..., 0]
    torch.testing.assert_close(layer.target_log_prob(hidden, words, history=history), chosen)
    torch.testing.assert_close(layer.loss(hidden, words, history=history, reduction="none"), -chosen)
    smooth = layer.loss(hidden, words, history=history, reduction="none", label_smoothing=0.1)
    torch.testing.assert_close(smooth, -0.9 * chosen - 0.1 * log_prob.mean(-1))
    values, classes = layer.top_k(hidden, 7, history=history)
    torch.testing.assert_close(values, log_prob.gather(-1, classes))


@pytest.mark.parametrize("kernels", LAYERS)
def test_gradients_are_those_of_differences(kernels: Any) -> None:
    layer = _layer(kernels)
    hidden, words = _text(1, 4)

    def loss(hidden: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(dict(layer.named_parameters()), parameters, strict=True))
        arguments = {"history": _history(hidden, words), "label_smoothing": 0.1}
        found: Tensor = torch.func.functional_call(layer, named, (hidden, words), arguments)
        return found

    inputs = [each.detach().requires_grad_() for each in (hidden, *layer.parameters())]
    assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize("kernels", LAYERS)
def test_ignored_targets_and_those_outside_the_history_have_finite_gradients(kernels: Any) -> None:
    layer = _layer(kernels)
    hidden, words = _text()
    words[0, 3:] = -100
    hidden.requires_grad_()
    history = _history(hidden, words)
    losses = layer.loss(hidden, words, history=history, reduction="none")
    assert losses[0, 3:].eq(0).all()
    total = layer.loss(hidden, words, history=history)
    torch.testing.assert_close(total, losses.sum())
    total.backward()
    gradients = [hidden.grad, *(each.grad for each in layer.parameters())]
    assert all(bool(each.isfinite().all()) for each in gradients if each is not None)


# ---- history ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", LAYERS)
@torch.no_grad()
def test_a_text_read_in_batches_has_the_probabilities_of_the_whole_text(kernels: Any) -> None:
    layer = _layer(kernels)
    hidden, words = _text(2, 9)
    whole = layer.target_log_prob(hidden, words, history=_history(hidden, words))
    memory, parts = Memory.empty(hidden), []
    for part in (slice(0, 1), slice(1, 5), slice(5, 9)):
        history, memory = memory.read(hidden[:, part], words[:, part], layer.window)
        parts.append(layer.target_log_prob(hidden[:, part], words[:, part], history=history))
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


@torch.no_grad()
def test_the_next_words_have_no_influence() -> None:
    layer = _layer(["lin", "cache", "pointer"])
    hidden, words = _text()
    others = words.clone()
    others[:, 3:] = (others[:, 3:] + 1) % 7
    found = [layer.log_prob(hidden, history=_history(hidden, each)) for each in (words, others)]
    torch.testing.assert_close(found[0][:, :4], found[1][:, :4], rtol=0, atol=0)
    assert not torch.equal(found[0][:, 4:], found[1][:, 4:])


@torch.no_grad()
def test_padded_words_are_in_no_history() -> None:
    hidden, words = _text(1, 5)
    padded = words.clone()
    padded[0, 1] = -100
    history = _history(hidden, padded)
    assert history.visible[0, 4].tolist() == [True, False, True, True]


@torch.no_grad()
def test_without_a_history_the_kernels_share_the_weight() -> None:
    layer = _layer(["2*lin", "pointer", {"name": "cache", "weight": 0.2}])
    hidden, words = _text()
    weights = layer.mixture_weights(hidden)
    assert weights[..., 2:].eq(0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6, dtype=torch.float64))
    chosen = layer.log_prob(hidden).gather(-1, words[..., None])[..., 0]
    torch.testing.assert_close(layer.target_log_prob(hidden, words), chosen)


def test_a_cache_of_constant_weight_changes_nothing_in_training_without_a_history() -> None:
    layer = _layer(["lin", {"name": "cache", "weight": 0.2}])
    plain = GeneralizedSoftmax(7, 4).double()
    plain.load_state_dict({"weight": layer.weight, "_extra_state": plain.get_extra_state()})
    assert not layer.learns_from_history
    hidden, words = _text()
    torch.testing.assert_close(layer.loss(hidden, words), plain.loss(hidden, words), rtol=0, atol=0)


def test_a_history_of_other_positions_is_refused() -> None:
    layer = _layer(["lin", "cache"])
    hidden, words = _text()
    history = _history(hidden, words)
    for other in (hidden[:, :-1], hidden[:1], hidden.flatten(0, 1)):
        with pytest.raises(ValueError, match="hist"):
            layer.log_prob(other, history=history)


# ---- construction -----------------------------------------------------------------------------------------


def test_parameters_of_a_layer_with_other_components() -> None:
    shapes = {
        kernels: {name: tuple(each.shape) for name, each in GeneralizedSoftmax(7, 4, kernels).named_parameters()}
        for kernels in ("lin, cache", "2*lin, unigram")
    }
    assert shapes == {
        "lin, cache": {"weight": (7, 4), "prior": (4, 2)},
        "2*lin, unigram": {"weight": (7, 4), "prior": (4, 3), "projections": (2, 4, 4), "others.0.logits": (7,)},
    }
    constant = GeneralizedSoftmax(7, 4, ["lin", {"name": "cache", "weight": 0.1}])
    assert [name for name, _ in constant.named_parameters()] == ["weight"]


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        ("cache", "a kernel must come first"),
        ("cache, lin", "a kernel must come first"),
        (["lin", {"name": "cache", "theta": 0}], "theta of component 'cache'"),
        (["lin", {"name": "cache", "window": 0}], "window of component 'cache'"),
        (["lin", {"name": "cache", "weight": -0.1}], "weight of component 'cache'"),
        (["lin", {"name": "cache", "rubbish": 1}], "component 'cache': .*rubbish"),
        (["lin", {"name": "cache", "weight": 0.6}, {"name": "cache", "weight": 0.4}], "must sum to less than 1"),
    ],
)
def test_bad_components_are_refused(kernels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneralizedSoftmax(7, 4, kernels)


def test_target_probabilities_are_for_kernels() -> None:
    hidden, _ = _text()
    with pytest.raises(ValueError, match="target probabilities"):
        _layer(["lin", "unigram"]).loss(hidden, torch.full((2, 6, 7), 1 / 7, dtype=torch.float64))


def test_the_configuration_makes_an_equal_layer() -> None:
    layer = _layer(["lin", {"name": "cache", "theta": 0.7, "window": None, "weight": 0.2}, "pointer"])
    state = layer.state_dict()
    same = GeneralizedSoftmax(7, 4, ["lin", {"name": "cache", "theta": 0.7, "window": None, "weight": 0.2}, "pointer"])
    same.double().load_state_dict(state)
    with pytest.raises(ValueError, match="pointer"):
        _layer(["lin", {"name": "pointer", "window": 7}]).load_state_dict(state)


def test_a_cache_of_constant_weight_is_added_to_a_trained_layer() -> None:
    plain, layer = _layer(["2*lin"]), _layer(["2*lin", {"name": "cache", "weight": 0.2}])
    layer.load_state_dict(plain.state_dict())
    plain.load_state_dict(layer.state_dict())
    with pytest.raises(ValueError, match="cache"):
        _layer(["2*lin", "cache"]).load_state_dict(plain.state_dict())


class Uniform(Component):
    """A component of a user: every class alike."""

    reads_history = False

    def __init__(self, num_classes: int, hidden_size: int, *, weight: float | None = None) -> None:
        super().__init__(weight)
        self.num_classes = num_classes

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def distribution(self, hidden: Tensor, history: History | None, temperature: float = 1.0) -> Shared:
        even = hidden.new_full((self.num_classes,), -math.log(self.num_classes))
        return Shared(even, hidden.new_zeros(hidden.shape[:-1].numel()))


@torch.no_grad()
def test_a_component_of_ones_own() -> None:
    hidden, _ = _text()
    plain = _layer(["lin"])
    layer = _layer(["lin", {"name": f"{__name__}:Uniform", "weight": 0.5}])
    torch.testing.assert_close(layer.log_prob(hidden).exp(), 0.5 * plain.log_prob(hidden).exp() + 0.5 / 7)


def test_names() -> None:
    assert list(COMPONENTS) == ["cache", "pointer", "unigram", "copy"]
    with pytest.raises(ValueError, match="unknown component 'lin'; known components: cache"):
        build_component("lin", 3, 2)


def test_attention_without_places() -> None:
    empty = Attention(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.long), torch.full((2,), -torch.inf))
    assert empty.log_prob(3).eq(-torch.inf).all()
    assert empty.target_log_prob(torch.tensor([0, 1])).eq(-torch.inf).all()
