"""Second derivatives, and `torch.func`, which transforms a loss: right, or refused.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from training.softmax import KERNELS, GeneralizedSoftmax, plain_formulas, reference, sparse_softmax_loss
from training.softmax.sparse import sparse_softmax_cross_entropy

N, V, D = 5, 9, 6
LAYERS: dict[str, dict[str, Any]] = {
    **{name: {"kernels": name} for name in KERNELS},
    "learnt": {"kernels": [{"name": "rbf", "learnable": True}]},
    "learnt directions": {"kernels": [{"name": name, "learnable": True} for name in ("cos", "vmf")]},
    "margin": {"kernels": "cos", "angular_margin": 0.3, "cosine_margin": 0.1},
    "mixture of margins": {"kernels": "2*cos", "bias": True, "angular_margin": 0.3, "label_smoothing": 0.1},
    "mixture": {"kernels": "lin, pow, hpb", "bias": True, "variance_penalty": 0.1},
    "low rank": {"kernels": "2*log", "untied": 2},
    "smoothed": {"kernels": "log", "bias": True, "label_smoothing": 0.1},
    "sparse": {"kernels": "pow", "sparse_k": 3},
    "entmax": {"kernels": "lin", "alpha": 1.5, "bias": True},
    "sparsemax": {"kernels": "rbf", "alpha": 2.0, "label_smoothing": 0.1},
}


def _layer(options: dict[str, Any]) -> tuple[GeneralizedSoftmax, Tensor, Tensor]:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer, torch.randn(N, D, dtype=torch.float64, requires_grad=True), torch.arange(N)


def _penalty(loss: Tensor, hidden: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of the loss with a gradient penalty."""
    (gradient,) = torch.autograd.grad(loss, hidden, create_graph=True)
    return torch.autograd.grad(loss + gradient.square().sum(), inputs)


@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_gradient_penalty_has_the_gradients_of_the_reference(name: str, reduction: str) -> None:
    layer, hidden, target = _layer(LAYERS[name])
    inputs = [hidden, *layer.parameters()]
    loss = layer.loss(hidden, target, reduction=reduction).sum()  # type: ignore[arg-type]
    found = _penalty(loss, hidden, inputs)
    expected = _penalty(reference.losses(layer, hidden, target).sum(), hidden, inputs)
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernels", ["log", "lin, pow", "hpb, unigram"])
def test_a_gradient_penalty_with_class_weights_is_that_of_the_sum_over_positions(kernels: str) -> None:
    layer, hidden, target = _layer({"kernels": kernels, "bias": True})
    weight, inputs = torch.linspace(0.5, 2.0, V, dtype=torch.float64), [hidden, *layer.parameters()]
    found, expected = (
        _penalty(layer.loss(hidden, target, weight=weight, ignore_index=2, reduction=each).sum(), hidden, inputs)
        for each in ("sum", "none")
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_a_gradient_penalty_is_that_of_cross_entropy() -> None:
    layer, hidden, target = _layer({"kernels": "lin"})
    found = _penalty(layer.loss(hidden, target), hidden, [hidden, layer.weight])
    plain = functional.cross_entropy(hidden @ layer.weight.t(), target, reduction="sum")
    torch.testing.assert_close(found, _penalty(plain, hidden, [hidden, layer.weight]))


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in ("lin", "vmf")])
def test_fused_functions_refuse_and_say_what_to_do(name: str) -> None:
    layer, hidden, _ = _layer({"kernels": name})
    with pytest.raises(RuntimeError, match="plain_formulas"):
        torch.autograd.grad(layer.log_prob(hidden).square().sum(), hidden, create_graph=True)
    with plain_formulas():
        (gradient,) = torch.autograd.grad(layer.log_prob(hidden).square().sum(), hidden, create_graph=True)
    (plain,) = torch.autograd.grad(reference.log_prob(layer, hidden).square().sum(), hidden, create_graph=True)
    second = (torch.autograd.grad(value.square().sum(), layer.weight)[0] for value in (gradient, plain))
    torch.testing.assert_close(*second, rtol=1e-8, atol=1e-8)


def test_the_sparse_loss_refuses() -> None:
    scores = torch.randn(N, V, requires_grad=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(sparse_softmax_loss(scores, torch.arange(N), 3).sum(), scores, create_graph=True)


@pytest.mark.parametrize("name", LAYERS)
def test_func_grad_and_vmap_of_a_loss(name: str) -> None:
    """Gradients of each position alone, as for influence functions or differential privacy."""
    layer, hidden, target = _layer(LAYERS[name])
    target[2] = -100
    parameters = {key: value.detach() for key, value in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], hidden: Tensor, target: Tensor) -> Tensor:
        return torch.func.functional_call(layer, parameters, (hidden[None], target[None]))  # type: ignore[no-any-return]

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, hidden.detach(), target)
    for index in range(N):
        one = layer.loss(hidden[index, None], target[index, None])
        expected = torch.autograd.grad(one, list(layer.parameters()), allow_unused=True, materialize_grads=True)
        for (key, _), gradient in zip(layer.named_parameters(), expected, strict=True):
            torch.testing.assert_close(found[key][index], gradient, rtol=1e-8, atol=1e-8)


def test_func_grad_of_the_sparse_loss() -> None:
    scores, target = torch.randn(N, V, dtype=torch.float64), torch.tensor([1, -100, 3, 8, 0])
    found = torch.func.grad(lambda values: sparse_softmax_cross_entropy(values, target, 3))(scores)
    scores.requires_grad_()
    (expected,) = torch.autograd.grad(sparse_softmax_cross_entropy(scores, target, 3), scores)
    torch.testing.assert_close(found, expected)


def test_a_backward_pass_after_functional_call_takes_the_values_of_its_forward_pass() -> None:
    """Those of the layer, which it had again by then, gave other gradients."""
    kernels = [{"name": "rbf", "learnable": True}, {"name": "pow", "learnable": True}]
    options = {"kernels": kernels, "label_smoothing": 0.1}
    layer, hidden, target = _layer(options)
    given = {name: value.detach() + 0.5 for name, value in layer.named_parameters()}
    leaves = {name: value.clone().requires_grad_() for name, value in given.items()}
    loss = torch.func.functional_call(layer, leaves, (hidden, target))
    found = torch.autograd.grad(loss, list(leaves.values()))
    layer.load_state_dict({**given, "_extra_state": layer.get_extra_state()})
    torch.testing.assert_close(found, torch.autograd.grad(layer.loss(hidden, target), list(layer.parameters())))
