"""Tests that layers, losses and kernels accept any leading dimensions, as `torch.nn.functional` does.

Shapes: `V` classes, `d` hidden size; positions are `[4, 7]`, one position `[]`, or none `[0, 3]`.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from training.softmax import (
    KERNELS,
    GeneralizedSoftmax,
    build_kernel,
    sparse_softmax,
    sparse_softmax_cross_entropy,
    sparse_softmax_loss,
)
from training.softmax.sparse import best_classes

V, D = 9, 6
LEADING = [(4, 7), (2, 1, 3), (5,), (), (0, 3)]
LAYERS: dict[str, Callable[[], GeneralizedSoftmax]] = {
    "single": lambda: GeneralizedSoftmax(V, D, "pow"),
    "mixture": lambda: GeneralizedSoftmax(V, D, "3*lin, log", variance_penalty=0.2, label_smoothing=0.1),
    "sparse": lambda: GeneralizedSoftmax(V, D, "lin, pow", sparse_k=3),
    "untied": lambda: GeneralizedSoftmax(V, D, "lin, hpb", untied=2),
    "entmax": lambda: GeneralizedSoftmax(V, D, "pow", alpha=1.5),
    "biased": lambda: GeneralizedSoftmax(V, D, "lin, pow", bias=True),
}


def _inputs(leading: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(*leading, D, generator=generator, dtype=torch.float64)
    return hidden, torch.randint(V, leading, generator=generator)


def _layer(name: str) -> GeneralizedSoftmax:
    torch.manual_seed(1)
    return LAYERS[name]().double()


def _assert_equal(found: Tensor, rows: Tensor, leading: tuple[int, ...]) -> None:
    assert found.shape == (*leading, *rows.shape[1:])
    assert torch.equal(found.reshape(rows.shape), rows)


def test_the_documented_example() -> None:
    """`lin` with the identity as weights: scores are the hidden state, and the loss is log-sum-exp minus the target."""
    layer = GeneralizedSoftmax(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
    hidden, target = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]]), torch.tensor([[0, 1]])
    assert layer.log_prob(hidden).exp()[0, 0].tolist() == [0.5, 0.5]
    expected = [math.log(2), math.log(math.e + 1)]
    assert layer.loss(hidden, target, reduction="none").tolist() == [pytest.approx(expected)]
    assert layer.loss(hidden, target).item() == pytest.approx(sum(expected))
    assert layer.target_log_prob(hidden, target).tolist() == [pytest.approx([-each for each in expected])]


@pytest.mark.parametrize("leading", LEADING, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, leading: tuple[int, ...]) -> None:
    layer, (hidden, target) = _layer(name), _inputs(leading)
    rows, targets = hidden.reshape(-1, D), target.flatten()
    _assert_equal(layer.log_prob(hidden), layer.log_prob(rows), leading)
    _assert_equal(layer.mixture_weights(hidden), layer.mixture_weights(rows), leading)
    for found, expected in zip(layer.scores(hidden), layer.scores(rows), strict=True):
        _assert_equal(found, expected, leading)
        _assert_equal(layer.normalizer_of(found), layer.normalizer_of(expected), leading)
    _assert_equal(layer.mix(hidden, layer.scores(hidden)), layer.log_prob(rows), leading)
    _assert_equal(layer.target_log_prob(hidden, target), layer.target_log_prob(rows, targets), leading)
    _assert_equal(layer.loss(hidden, target, reduction="none"), layer.loss(rows, targets, reduction="none"), leading)
    assert torch.equal(layer.loss(hidden, target), layer.loss(rows, targets))


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_and_ignored_targets(name: str) -> None:
    layer, (hidden, target) = _layer(name), _inputs((4, 7))
    target[1, 2:] = -100
    gradients = []
    for inputs, targets in ((hidden, target), (hidden.flatten(0, 1), target.flatten())):
        leaf = inputs.clone().requires_grad_()
        layer.loss(leaf, targets, reduction="mean").backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        gradients.append(leaf.grad.view(4, 7, D))
    assert torch.equal(*gradients)
    assert not gradients[0][1, 2:].any()
    assert gradients[0][1, :2].any()


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str) -> None:
    kernel, weight = build_kernel(name), torch.randn(V, D, generator=torch.Generator().manual_seed(2)).double()
    for leading in LEADING:
        hidden, _ = _inputs(leading)
        _assert_equal(kernel(weight, hidden), kernel(weight, hidden.reshape(-1, D)), leading)


@pytest.mark.parametrize("leading", LEADING, ids=str)
def test_sparse_functions(leading: tuple[int, ...]) -> None:
    _, target = _inputs(leading)
    scores = torch.randn(*leading, V, generator=torch.Generator().manual_seed(3))
    rows, targets = scores.reshape(-1, V), target.flatten()
    for found, expected in zip(best_classes(scores, 2), best_classes(rows, 2), strict=True):
        _assert_equal(found, expected, leading)
    _assert_equal(sparse_softmax(scores, 2), sparse_softmax(rows, 2), leading)
    _assert_equal(sparse_softmax_loss(scores, target, 2), sparse_softmax_loss(rows, targets, 2), leading)
    each: Any = {"k": 2, "reduction": "none"}
    _assert_equal(
        sparse_softmax_cross_entropy(scores, target, **each),
        sparse_softmax_cross_entropy(rows, targets, **each),
        leading,
    )


@pytest.mark.parametrize("target", [(7, 4), (28,), (4,), (4, 7, 1)], ids=str)
def test_targets_of_another_shape_are_named(target: tuple[int, ...]) -> None:
    hidden, targets = _inputs((4, 7))[0], torch.zeros(target, dtype=torch.long)
    said = rf"target must be \[4, 7\] for inputs \[4, 7, 6\], not \[{', '.join(map(str, target))}\]"
    for name in LAYERS:
        for call in (_layer(name).loss, _layer(name).target_log_prob):
            with pytest.raises(ValueError, match=said):
                call(hidden, targets)
    for function in (sparse_softmax_loss, sparse_softmax_cross_entropy):
        with pytest.raises(ValueError, match="target must be"):
            function(hidden, targets, 2)
