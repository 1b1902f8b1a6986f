"""Layers and losses under `torch.inference_mode()`, and with tensors that were made there.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

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

N, V, D = 9, 300, 8
LAYERS: dict[str, dict[str, Any]] = {
    **{name: {"kernels": [name]} for name in KERNELS},
    **{
        f"{name}, learnt": {"kernels": [{"name": name, "learnable": True}]}
        for name in ("log", "pow", "pol", "rbf", "wav", "cos", "vmf")
    },
    "mixbig": {"kernels": "mixbig"},
    "full": {"kernels": "3*lin", "untied": "full"},
    "low rank": {"kernels": "2*log,wav", "untied": 2},
    "all options": {
        "kernels": "mog,pow",
        "bias": True,
        "label_smoothing": 0.1,
        "variance_penalty": 0.1,
    },
    "smoothed": {"kernels": "lin", "bias": True, "label_smoothing": 0.1},
    "sparse": {"kernels": "log", "sparse_k": 7},
    "sparse, gathered": {"kernels": "log", "sparse_k": 1},
    "sparse mixture": {"kernels": "hpb,log", "sparse_k": 7, "label_smoothing": 0.1},
    "sparse mixture, gathered": {"kernels": "lin,log", "sparse_k": 1},
}
Operation = Callable[[GeneralizedSoftmax, Tensor, Tensor], Tensor]
LOSSES: dict[str, Operation] = {
    "sum": lambda layer, hidden, target: layer.loss(hidden, target),
    "mean": lambda layer, hidden, target: layer.loss(hidden, target, reduction="mean"),
    "none": lambda layer, hidden, target: layer.loss(hidden, target, reduction="none"),
    "target": lambda layer, hidden, target: layer.target_log_prob(hidden, target, sparse=False),
}
OTHERS: dict[str, Operation] = {
    "sparse target": lambda layer, hidden, target: layer.target_log_prob(hidden, target),
    "log_prob": lambda layer, hidden, target: layer.log_prob(hidden),
    "mixture weights": lambda layer, hidden, target: layer.mixture_weights(hidden),
    "variance": lambda layer, hidden, target: layer.mixture_variance(hidden),
    "scores": lambda layer, hidden, target: torch.stack(layer.scores(hidden)),
}
OPERATIONS = {**LOSSES, **OTHERS}
CASTS = ["float32", "bfloat16", "autocast"]


def make_layer(options: dict[str, Any], dtype: torch.dtype = torch.float32) -> GeneralizedSoftmax:
    torch.manual_seed(0)
    return GeneralizedSoftmax(V, D, **options).to(dtype)


def batch(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    target = torch.randint(0, V, (N,), generator=generator)
    target[3] = -100
    return torch.randn(N, D, generator=generator).to(dtype), target


def made_in_inference_mode(*values: Tensor) -> list[Tensor]:
    with torch.inference_mode():
        made = [value.clone() for value in values]
    assert all(value.is_inference() for value in made)
    return made


def apply(operation: str, layer: GeneralizedSoftmax, hidden: Tensor, target: Tensor) -> Tensor:
    """Run an operation; only losses have positions that are ignored."""
    wanted = target if operation in ("sum", "mean", "none") else target.clamp_min(0)
    return OPERATIONS[operation](layer, hidden, wanted)


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", LAYERS)
def test_results_are_those_without_inference_mode(name: str, operation: str, cast: str) -> None:
    dtype = torch.bfloat16 if cast == "bfloat16" else torch.float32
    layer, (hidden, target) = make_layer(LAYERS[name], dtype), batch(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=cast == "autocast"):
        # Where the distribution itself is computed, fused formulas with gradients round in other ways.
        with torch.set_grad_enabled(operation in LOSSES and "label_smoothing" not in LAYERS[name]):
            expected = apply(operation, layer, hidden, target).detach()
        with torch.inference_mode():
            assert torch.equal(apply(operation, layer, hidden, target), expected)
            assert torch.equal(apply(operation, layer, hidden.clone(), target.clone()), expected)


def gradients(operation: str, layer: GeneralizedSoftmax, hidden: Tensor, target: Tensor) -> list[Tensor]:
    """Return the result, and the gradients of all parameters."""
    layer.zero_grad()
    result = apply(operation, layer, hidden, target)
    if result.requires_grad:  # the mixture weights of one component are constants
        result[torch.isfinite(result)].sum().backward()
    return [result.detach(), *(torch.zeros(()) if each.grad is None else each.grad for each in layer.parameters())]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", LAYERS)
def test_tensors_that_were_made_there_have_the_same_gradients(name: str, operation: str) -> None:
    layer, (hidden, target) = make_layer(LAYERS[name]), batch()
    expected = gradients(operation, layer, hidden, target)
    given = made_in_inference_mode(hidden, target)
    assert_same(gradients(operation, layer, *given), expected)
    with torch.inference_mode():
        layer_there = make_layer(LAYERS[name])
    assert next(layer_there.parameters()).is_inference()
    assert_same(gradients(operation, layer_there, hidden, target), expected)
    with torch.no_grad():
        assert not apply(operation, layer_there, *given).requires_grad


def test_a_loss_without_gradients_keeps_none() -> None:
    layer, (hidden, target) = make_layer({"kernels": "log"}), batch()
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert not layer.loss(hidden, target).requires_grad
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    assert not layer.loss(hidden, target).requires_grad
    given = hidden.clone().requires_grad_()
    layer.loss(given, target).backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "operation",
    [
        lambda scores, target: sparse_softmax(scores, 3),
        lambda scores, target: sparse_softmax_loss(scores, target, 3),
        lambda scores, target: sparse_softmax_cross_entropy(scores, target, 3, label_smoothing=0.1),
    ],
)
def test_sparse_softmax(operation: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> None:
    scores = torch.randn(N, 50, generator=torch.Generator().manual_seed(1)).to(dtype)
    target = torch.arange(N)
    expected = operation(scores, target)
    there = made_in_inference_mode(scores, target)
    with torch.inference_mode():
        assert torch.equal(operation(*there), expected)
    assert torch.equal(operation(*there), expected)
    ours, theirs = (scores.clone().requires_grad_() for _ in range(2))
    operation(ours, there[1]).square().sum().backward()  # type: ignore[no-untyped-call]
    operation(theirs, target).square().sum().backward()  # type: ignore[no-untyped-call]
    assert ours.grad is not None
    assert theirs.grad is not None
    assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("learnable", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str, learnable: bool) -> None:
    if learnable and not KERNELS[name].defaults:
        pytest.skip("it has no real-valued hyperparameter")
    kernel = build_kernel(name, hidden_size=D, learnable=learnable)
    generator = torch.Generator().manual_seed(1)
    weight, hidden = torch.randn(20, D, generator=generator), torch.randn(N, D, generator=generator)
    weight_there, hidden_there = made_in_inference_mode(weight, hidden)
    with torch.no_grad():
        expected = kernel(weight, hidden)
        pairs = kernel.pair_scores(weight.expand(N, -1, -1), hidden)
    with torch.inference_mode():
        assert torch.equal(kernel(weight_there, hidden_there), expected)
        assert torch.equal(kernel.pair_scores(weight_there.expand(N, -1, -1), hidden_there), pairs)
    found = []
    for other in (hidden, hidden_there):
        given = weight.clone().requires_grad_()
        kernel(given, other).square().sum().backward()
        assert given.grad is not None
        found.append(given.grad)
    assert torch.equal(*found)
