"""Tests of margins: reduced cosines by hand, losses of layers against the reference, refusals.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from training.softmax import GeneralizedSoftmax, kernel_cross_entropy, reference
from training.softmax.margin import Margin

N, V, D = 10, 7, 6
LEARNT = {"name": "cos", "learnable": True, "scale": 5.0}
LAYERS: dict[str, dict[str, Any]] = {
    "one": {"kernels": "cos"},
    "learnt": {"kernels": [LEARNT]},
    "biased": {"kernels": [LEARNT], "bias": True},
    "mixture": {"kernels": [LEARNT, "cos"], "variance_penalty": 0.1},
    "low rank": {"kernels": "2*cos", "untied": 2},
    "smoothed": {"kernels": [LEARNT], "label_smoothing": 0.2},
    "smoothed mixture": {"kernels": "2*cos", "label_smoothing": 0.2},
    "sparse": {"kernels": "cos", "sparse_k": 3},
    "sparse mixture": {"kernels": "2*cos", "sparse_k": 3, "label_smoothing": 0.2},
    "entmax": {"kernels": "cos", "alpha": 1.5},
}
MARGINS = [{"angular_margin": 0.5}, {"cosine_margin": 0.35}, {"angular_margin": 0.3, "cosine_margin": 0.2}]


def _layer(**options: Any) -> tuple[GeneralizedSoftmax, Tensor, Tensor]:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, **options).double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "raw" not in name:
                parameter.normal_()
    return layer, torch.randn(N, D, dtype=torch.float64, requires_grad=True), torch.arange(N) % V


@pytest.mark.parametrize(
    ("margin", "degrees", "expected"),
    [
        (Margin(angular=math.radians(30)), 60, 0.0),  # cos 90
        (Margin(angular=math.radians(30)), 0, 3**0.5 / 2),  # cos 30
        (Margin(angular=math.radians(30)), 150, -1.0),  # cos 180
        (Margin(angular=math.radians(60)), 180, -1.5),  # -1 + cos 60 - 1
        (Margin(cosine=0.35), 60, 0.15),
        (Margin(angular=math.radians(30), cosine=0.2), 60, -0.2),
    ],
)
def test_reduced_cosines_by_hand(margin: Margin, degrees: float, expected: float) -> None:
    cosine = torch.tensor(math.cos(math.radians(degrees)), dtype=torch.float64)
    assert margin(cosine).item() == pytest.approx(expected, abs=1e-7)


def test_a_larger_cosine_is_never_reduced_to_a_smaller_one() -> None:
    cosine = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    reduced = Margin(angular=0.5)(cosine)
    assert bool((reduced.diff() > 0).all())
    assert bool((reduced < cosine).all())
    assert reduced.diff().max() < 0.03  # no jump


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slopes_are_finite_where_vectors_are_parallel(dtype: torch.dtype) -> None:
    cosine = torch.tensor([-1.0, 1.0, 1.0 + torch.finfo(dtype).eps], dtype=dtype, requires_grad=True)
    values = Margin(angular=0.5)(cosine)
    (slopes,) = torch.autograd.grad(values.sum(), cosine)
    assert bool(values.isfinite().all())
    assert bool(slopes.isfinite().all())


def test_the_loss_by_hand() -> None:
    """Cosines 1 / 2 and 0, scale 4: with a margin of 30 degrees the target's score is 0, as the other's."""
    with torch.no_grad():
        layer = GeneralizedSoftmax(2, 2, [{"name": "cos", "scale": 4}], angular_margin=math.radians(30)).double()
        layer.weight.copy_(torch.tensor([[0.5, 0.75**0.5], [0.0, -3.0]]).mul(2))
        hidden, target = torch.tensor([[7.0, 0.0]], dtype=torch.float64), torch.tensor([0])
        assert layer.loss(hidden, target).item() == pytest.approx(math.log(2), abs=1e-6)
        plain = layer.loss(hidden, target, angular_margin=0.0).item()
    assert plain == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)


@pytest.mark.parametrize("chunk", [1 << 21, 3 * V + 2])
@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("margin", MARGINS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_losses_and_gradients_equal_the_reference(
    name: str, margin: dict[str, float], reduction: Any, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.softmax.passes.CHUNK_SCORES", chunk)
    layer, hidden, target = _layer(**LAYERS[name], **margin)
    inputs = [hidden, *layer.parameters()]
    loss = layer.loss(hidden, target, reduction=reduction)
    expected = reference.losses(layer, hidden, target)
    torch.testing.assert_close(loss, expected.sum() if reduction == "sum" else expected)
    found = torch.autograd.grad(loss.sum(), inputs)
    for ours, plain in zip(found, torch.autograd.grad(expected.sum(), inputs), strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("name", ["learnt", "mixture", "smoothed"])
def test_gradients_equal_finite_differences(name: str) -> None:
    layer, hidden, target = _layer(**LAYERS[name], angular_margin=0.4, cosine_margin=0.1)
    target[1] = -100
    arguments = (hidden[:3].detach().requires_grad_(), *layer.parameters())
    torch.autograd.gradcheck(
        lambda rows, *_: layer.loss(rows, target[:3], z_loss=0.1, temperature=1.5, weight=torch.arange(V) + 1.0),
        arguments,
    )


def test_probabilities_have_no_margin() -> None:
    layer, hidden, target = _layer(kernels="cos", angular_margin=0.5, sparse_k=3)
    plain, _, _ = _layer(kernels="cos", sparse_k=3)
    torch.testing.assert_close(layer.log_prob(hidden), plain.log_prob(hidden))
    for sparse in (True, False):
        found = layer.target_log_prob(hidden, target, sparse=sparse)
        torch.testing.assert_close(found, plain.target_log_prob(hidden, target, sparse=sparse))
    assert bool((layer.loss(hidden, target, reduction="none") > plain.loss(hidden, target, reduction="none")).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_the_loss_of_float64(dtype: torch.dtype) -> None:
    layer, hidden, target = _layer(kernels=[LEARNT], angular_margin=0.5)
    expected = layer.loss(hidden, target).item()
    narrow = hidden.detach().to(dtype).requires_grad_()
    loss = layer.to(dtype).loss(narrow, target)
    assert loss.item() == pytest.approx(expected, rel=0.02)
    assert all(bool(each.isfinite().all()) for each in torch.autograd.grad(loss, [narrow, *layer.parameters()]))


def test_the_function_takes_margins() -> None:
    layer, hidden, target = _layer(kernels="cos", angular_margin=0.5, cosine_margin=0.1)
    found = kernel_cross_entropy(
        hidden, layer.weight, target, kernel="cos", reduction="sum", angular_margin=0.5, cosine_margin=0.1
    )
    torch.testing.assert_close(found, layer.loss(hidden, target))


def test_vectors_that_are_parallel_have_finite_gradients() -> None:
    layer = GeneralizedSoftmax(V, D, "cos", angular_margin=0.5)
    for factor in (1.0, -2.0):
        hidden = (factor * layer.weight.detach()).requires_grad_()
        loss = layer.loss(hidden, torch.arange(V))
        assert all(bool(each.isfinite().all()) for each in torch.autograd.grad(loss, [hidden, layer.weight]))


@pytest.mark.parametrize("kernels", ["lin", "vmf", "cos, lin", "rbf"])
@pytest.mark.parametrize("margin", MARGINS[:2], ids=str)
def test_kernels_without_an_angle_are_refused(kernels: str, margin: dict[str, float]) -> None:
    (argument,) = margin
    with pytest.raises(ValueError, match=rf"{argument}: kernel '{kernels.split(', ')[-1]}' has no angle"):
        GeneralizedSoftmax(V, D, kernels, **margin)  # type: ignore[arg-type]
    layer, hidden, target = _layer(kernels=kernels)
    with pytest.raises(ValueError, match="has no angle"):
        layer.loss(hidden, target, **margin)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "margin", [{"angular_margin": -0.1}, {"angular_margin": 1.6}, {"cosine_margin": -0.1}, {"cosine_margin": math.nan}]
)
def test_margins_out_of_range_are_named(margin: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(margin))):
        GeneralizedSoftmax(V, D, "cos", **margin)  # type: ignore[arg-type]


def test_targets_that_are_probabilities_are_refused() -> None:
    layer, hidden, target = _layer(kernels="cos", cosine_margin=0.1)
    with pytest.raises(ValueError, match="a margin needs targets that are classes"):
        layer.loss(hidden, functional.one_hot(target, V).double())
