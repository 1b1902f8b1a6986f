"""Losses in half precision: as exact as products in it can be, and not less.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from training.softmax import GeneralizedSoftmax, reference

N, V, D = 64, 300, 32
DISTANCES = ["log", "pow", "rbf", "wav", "ssg", "mog"]


def _pair(kernels: str, dtype: torch.dtype, offset: float = 0.0) -> tuple[GeneralizedSoftmax, GeneralizedSoftmax]:
    """Return a layer in half precision, and the same in float64."""
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, kernels).to(dtype)
    layer.weight.data += offset
    exact = GeneralizedSoftmax(V, D, kernels).double()
    exact.load_state_dict({name: value.double() for name, value in layer.state_dict().items() if "extra" not in name})
    return layer, exact


def _gradients(loss: Tensor, *inputs: Tensor) -> list[Tensor]:
    return [gradient.double() for gradient in torch.autograd.grad(loss, inputs)]


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("kernels", ["lin", "log", "lin, lin"])
def test_float16_gradients_at_the_first_loss_scale(kernels: str) -> None:
    """GradScaler begins with 65,536, which float16 cannot hold; gradients below 1 times it can be held."""
    layer, _ = _pair(kernels, torch.float16)
    layer.weight.data /= 100
    hidden = (torch.randn(N, D) / 100).half().requires_grad_()
    (gradient,) = torch.autograd.grad(layer.loss(hidden, torch.arange(N)) * 65536.0, hidden)
    plain = hidden.detach().float().requires_grad_()
    (exact,) = torch.autograd.grad(layer.float().loss(plain, torch.arange(N)), plain)
    assert gradient.isfinite().all()
    assert _error(gradient, exact.double() * 65536.0) < 0.01


@pytest.mark.parametrize("native", [True, False])
def test_bfloat16_weights_sum_their_gradient_in_float32(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 64 chunks: at 8,192 positions the error was 0.0092, that of cross_entropy 0.0021.

    The product of each chunk is rounded to bfloat16 before it is added, where that is its type.
    """
    monkeypatch.setattr("training.softmax.kernel.native_half", lambda kind: native)
    monkeypatch.setattr("training.softmax.passes.CHUNK_SCORES", 32 * V)
    layer, exact = _pair("lin", torch.bfloat16)
    hidden, target = torch.randn(2048, D).bfloat16(), torch.randint(V, (2048,))
    (found,) = _gradients(layer.loss(hidden, target), layer.weight)
    (expected,) = _gradients(exact.loss(hidden.double(), target), exact.weight)
    plain = functional.cross_entropy(functional.linear(hidden, layer.weight), target, reduction="sum")
    (peer,) = _gradients(plain, layer.weight)
    assert _error(found, expected) < (1.3 if native else 1.0) * _error(peer, expected)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("kernels", [*DISTANCES, "pow, log"])
def test_a_common_offset_costs_distances_nothing(
    kernels: str, autocast: bool, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At offset 30 in bfloat16, 2.04 was 3.50."""
    monkeypatch.setattr("training.softmax.kernel.native_half", lambda kind: native)
    layer, exact = _pair(kernels, torch.float32 if autocast else torch.bfloat16, offset=0.0 if "," in kernels else 30.0)
    hidden = (torch.randn(N, D) * D**-0.5 + (0.0 if "," in kernels else 30.0)).bfloat16()
    hidden = hidden.float() if autocast else hidden
    if kernels in ("ssg", "mog"):  # their last columns are variances, which are not moved
        count = 1 if kernels == "ssg" else 2
        for vectors in (layer.weight.data, exact.weight.data, hidden):
            vectors.view(len(vectors), count, -1)[:, :, -1] = 0.0
    target = torch.arange(N)
    expected = exact.loss(hidden.double(), target, reduction="mean")
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = layer.loss(hidden, target, reduction="mean")
        chosen = -layer.log_prob(hidden).gather(1, target[:, None]).mean()
    assert found.item() == pytest.approx(expected.item(), rel=0.01)
    assert chosen.item() == pytest.approx(expected.item(), rel=0.01)
    (ours,), (theirs,) = _gradients(found, layer.weight), _gradients(expected, exact.weight)
    assert _error(ours, theirs) < 0.05


@pytest.mark.parametrize(
    ("kernels", "tolerance"), [("lin", 1e-5), ("pow", 1e-5), ("cos", 0.01), ("vmf", 0.01), ("mix4", 0.01)]
)
def test_emulated_half_precision_computes_in_float32(
    kernels: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only projections of a mixture and unit vectors are rounded."""
    monkeypatch.setattr("training.softmax.kernel.native_half", lambda kind: False)
    layer, exact = _pair(kernels, torch.bfloat16)
    hidden, target = torch.randn(N, D).bfloat16(), torch.arange(N)
    found = layer.loss(hidden, target, reduction="mean")
    expected = reference.losses(exact, hidden.double(), target).mean()
    assert found.item() == pytest.approx(expected.item(), rel=tolerance)


@pytest.mark.parametrize("kernels", ["lin", "log", "cos", "lin, hpb"])
@pytest.mark.parametrize("options", [{}, {"sparse_k": 1}], ids=str)
def test_nothing_is_computed_for_a_frozen_weight(kernels: str, options: dict[str, int]) -> None:
    """Neither its gradient `[V, d]` nor the product that makes it."""
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, kernels, **options)  # type: ignore[arg-type]
    hidden, target = torch.randn(N, D, requires_grad=True), torch.arange(N)
    (expected,) = torch.autograd.grad(layer.loss(hidden, target), hidden)
    layer.weight.requires_grad_(False)
    with torch.profiler.profile(profile_memory=True) as profile:
        (found,) = torch.autograd.grad(layer.loss(hidden, target), hidden)
    torch.testing.assert_close(found, expected)
    made = [event for event in profile.events() if event.name == "aten::zeros_like"]
    assert all(event.cpu_memory_usage < V * D * 4 for event in made)


@pytest.mark.parametrize("kernels", ["cos", "vmf"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_angles_are_as_exact_as_inner_products(kernels: str, dtype: torch.dtype) -> None:
    layer, exact = _pair(kernels, dtype)
    plain, _ = _pair("lin", dtype)
    hidden, target = torch.randn(N, D).to(dtype), torch.arange(N)
    found, expected = layer.loss(hidden, target), exact.loss(hidden.double(), target)
    (ours,), (theirs,) = _gradients(found, layer.weight), _gradients(expected, exact.weight)
    (peer,) = _gradients(plain.loss(hidden, target), plain.weight)
    (exact_peer,) = _gradients(plain.double().loss(hidden.double(), target), plain.weight)
    assert found.item() == pytest.approx(expected.item(), rel=0.002)
    assert _error(ours, theirs) < max(0.01, 2 * _error(peer, exact_peer))


def test_a_frozen_body_leaves_the_gradient_of_the_weight() -> None:
    torch.manual_seed(0)
    layer, hidden, target = GeneralizedSoftmax(V, D, "lin, pow", bias=True), torch.randn(N, D), torch.arange(N)
    found = torch.autograd.grad(layer.loss(hidden, target), list(layer.parameters()))
    plain = torch.autograd.grad(reference.losses(layer, hidden, target).sum(), list(layer.parameters()))
    torch.testing.assert_close(found, plain, rtol=1e-3, atol=1e-4)
