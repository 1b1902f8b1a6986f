"""alpha-entmax as functions and as output layers: against the package `entmax`, the reference, and its properties.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

from typing import Any

import pytest
import torch
from entmax import entmax15, entmax15_loss, sparsemax, sparsemax_loss
from torch import Tensor

from training.softmax import KERNELS, GeneralizedSoftmax, entmax, entmax_loss, kernel_cross_entropy, reference
from training.softmax.alpha_entmax import dense_entmax, support

PEERS = {1.5: (entmax15, entmax15_loss), 2.0: (sparsemax, sparsemax_loss)}
ALPHAS = list(PEERS)
N, V, D = 10, 3000, 6


def _scores(classes: int, scale: float) -> Tensor:
    """Return scores of several kinds `[8, V]`: normal, equal, on a line, with a long tail, excluded classes."""
    scores = torch.randn(8, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * scale
    scores[0] = 0.0
    scores[1] = torch.linspace(0, -scale, classes, dtype=torch.float64)
    scores[2] = scores[2].abs().log()
    scores[3] += 1000.0
    scores[4, 1::2] = -torch.inf
    return scores


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("classes", [1, 2, 150, 3000, 20_011])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_distribution_and_loss_are_those_of_the_package(alpha: float, classes: int, scale: float) -> None:
    scores = _scores(classes, scale)
    expected, expected_loss = (function for function in PEERS[alpha])
    target = torch.zeros(8, dtype=torch.int64)
    torch.testing.assert_close(entmax(scores, alpha), expected(scores, dim=-1), rtol=0, atol=1e-12)
    finite = scores[[0, 1, 2, 3, 5, 6, 7]]  # the package's loss of excluded classes is NaN
    losses = entmax_loss(finite, target[:7], alpha, reduction="none")
    torch.testing.assert_close(losses, expected_loss(finite, target[:7]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("classes", [1, 2, 150, 3000, 20_011])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_float32_probabilities_are_right_and_sum_to_one(alpha: float, classes: int, scale: float) -> None:
    exact = _scores(classes, scale)
    scores = exact.float()
    expected = reference.entmax(scores[:4].double() if classes > 5000 else scores.double(), alpha)
    _, found = dense_entmax(scores.clone(), alpha)
    torch.testing.assert_close(found.double()[: len(expected)], expected, rtol=0, atol=3e-6)
    torch.testing.assert_close(found.sum(-1), torch.ones(8), rtol=0, atol=1e-6)
    torch.testing.assert_close(entmax(scores, alpha), found, rtol=0, atol=3e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_classes_above_zero_are_found_in_few_blocks(alpha: float) -> None:
    scores = _scores(20_011, 3.0)[5:].float()
    kept = scores.clone()
    found = support(scores, alpha)
    assert found is not None
    assert torch.equal(scores, kept)
    assert found.classes.shape[1] < 100
    value, dense = dense_entmax(scores, alpha)
    scattered = torch.zeros_like(dense).scatter_add_(1, found.classes, found.probabilities)
    torch.testing.assert_close(scattered, dense, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.value, value)
    assert support(torch.zeros(2, 20_011), alpha) is None, "all classes are above zero"
    assert support(kept[:0], alpha) is None


def test_without_reading_values_the_steps_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.softmax.alpha_entmax.readable", lambda values: False)
    for alpha in ALPHAS:
        for scale in (0.01, 0.1, 0.3, 1.0, 10.0):
            scores = _scores(20_011, scale)
            torch.testing.assert_close(entmax(scores, alpha), PEERS[alpha][0](scores, dim=-1), rtol=0, atol=1e-10)


@pytest.mark.parametrize("alpha", [1.0, *ALPHAS])
def test_derivatives_of_the_functions(alpha: float) -> None:
    scores = torch.randn(3, 7, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([1, 2, 3])
    for function in (lambda z: entmax(z, alpha), lambda z: entmax_loss(z, target, alpha)):
        assert torch.autograd.gradcheck(function, scores)
        assert torch.autograd.gradgradcheck(function, scores)


def test_alpha_one_is_softmax_and_its_cross_entropy() -> None:
    scores, target = _scores(9, 1.0)[:4], torch.tensor([0, -100, 3, 8])
    assert torch.equal(entmax(scores, 1.0), scores.softmax(-1))
    for reduction in ("none", "sum", "mean"):
        expected = torch.nn.functional.cross_entropy(scores, target, reduction=reduction)
        torch.testing.assert_close(entmax_loss(scores, target, 1.0, reduction=reduction), expected)  # type: ignore[arg-type]


def test_a_margin_makes_the_loss_zero() -> None:
    """The loss is 0 once the target's score is above all others by 1 / (alpha - 1)."""
    for alpha in ALPHAS:
        scores = torch.tensor([[1 / (alpha - 1), 0.0, -1.0]])
        assert entmax_loss(scores, torch.tensor([0]), alpha).item() == pytest.approx(0.0, abs=1e-6)
        assert entmax(scores, alpha).tolist() == [[1.0, 0.0, 0.0]]
        assert entmax_loss(scores - torch.tensor([0.1, 0.0, 0.0]), torch.tensor([0]), alpha).item() > 5e-5


# ---- as an output layer ------------------------------------------------------------------------------------


def _layer(kernels: Any, alpha: float, scale: float = 1.0, **options: Any) -> GeneralizedSoftmax:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, kernels, alpha=alpha, **options).double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "raw" not in name:
                parameter.normal_(std=scale)
    return layer


def _batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(N, D, generator=generator, dtype=torch.float64, requires_grad=True)
    return hidden, torch.randint(V, (N,), generator=generator)


@pytest.mark.parametrize("scale", [0.01, 2.0], ids=["all classes above zero", "few classes above zero"])
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kernels", [*KERNELS, [{"name": "rbf", "learnable": True}]], ids=str)
def test_loss_and_gradients_of_each_kernel_equal_the_reference(
    kernels: Any, alpha: float, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.softmax.passes.CHUNK_SCORES", 3 * V + 2)  # 10 = 3 + 3 + 3 + 1 positions
    monkeypatch.setattr("training.softmax.passes._BLOCK_SCORES", 2 * V)  # 3 = 2 + 1 positions
    monkeypatch.setattr("training.softmax.loss._FEW", 2)
    layer, (hidden, target) = _layer(kernels, alpha, scale, bias=True), _batch()
    inputs = (hidden, *layer.parameters())
    ours, plain = layer.loss(hidden, target), reference.losses(layer, hidden, target).sum()
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    for found, wanted in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(plain, inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(layer.log_prob(hidden), reference.log_prob(layer, hidden), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradients_of_few_classes_need_no_dense_products(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, (hidden, target) = _layer("lin", alpha, 5.0), _batch()
    expected = torch.autograd.grad(reference.losses(layer, hidden, target).sum(), (hidden, layer.weight))
    monkeypatch.setattr("training.softmax.passes.ComponentPass._through_products", None)  # called, it is an error
    torch.testing.assert_close(torch.autograd.grad(layer.loss(hidden, target), (hidden, layer.weight)), expected)


def test_the_distribution_of_a_layer() -> None:
    layer, (hidden, target) = _layer("lin", 1.5), _batch()
    probabilities = entmax(hidden @ layer.weight.t(), 1.5)
    torch.testing.assert_close(layer.log_prob(hidden).exp(), probabilities)
    assert layer.has_zeros
    chosen = layer.target_log_prob(hidden, target)
    torch.testing.assert_close(chosen, layer.log_prob(hidden).gather(1, target[:, None])[:, 0])
    assert (chosen == -torch.inf).any()
    positive = torch.where(probabilities > 0, probabilities, 1.0)
    torch.testing.assert_close(layer.entropy(hidden), -(probabilities * positive.log()).sum(-1))
    assert torch.equal(layer.argmax(hidden), probabilities.argmax(-1))
    assert (probabilities.gather(1, layer.sample(hidden)[:, None]) > 0).all()


def test_probabilities_as_targets_and_the_functional_form() -> None:
    layer, (hidden, target) = _layer("pow", 1.5), _batch()
    expected = reference.losses(layer, hidden, target)
    wanted = torch.nn.functional.one_hot(target, V).double()
    torch.testing.assert_close(layer.loss(hidden, wanted, reduction="none"), expected)
    loss = kernel_cross_entropy(hidden, layer.weight, target, kernel="pow", alpha=1.5, reduction="none")
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.3}, "alpha must be 1"),
        ({"alpha": 1.5, "sparse_k": 2}, "exclude each other"),
        ({"alpha": 2.0, "kernels": "lin, log"}, "a single kernel only"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneralizedSoftmax(9, 4, **options)
    if "kernels" not in options and "sparse_k" not in options:
        with pytest.raises(ValueError, match=message):
            entmax(torch.zeros(1, 2), options["alpha"])


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32(kind: torch.dtype) -> None:
    layer, (hidden, target) = _layer("lin", 1.5), _batch()
    half, states = layer.to(kind), hidden.detach().to(kind).requires_grad_()
    loss = half.loss(states, target)
    assert loss.dtype == torch.float32
    exact = _layer("lin", 1.5)
    with torch.no_grad():
        exact.weight.copy_(half.weight)
    torch.testing.assert_close(loss.double(), exact.loss(states.double(), target), rtol=1e-2, atol=1e-2)
    assert torch.isfinite(torch.autograd.grad(loss, half.weight)[0]).all()
