"""Tests of the chunked mixture cross entropy: equal to plain autograd in value and in every gradient.

Shapes: `N` positions, `V` classes, `d` hidden size, `K` components.
"""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from training.softmax import GeneralizedSoftmax, build_kernel
from training.softmax.kernels import KERNELS, Kernel
from training.softmax.loss import mixture_cross_entropy
from training.softmax.mixture import KernelSpec

N, V, D = 10, 7, 4
LAYERS: list[list[KernelSpec]] = [
    *([name] for name in KERNELS),
    [{"name": "log", "p": 1.5}],
    ["lin", "lin"],
    ["lin", "log", {"name": "pow", "p": 1}],
]
# Positions a chunk: all at once, 10 = 4 + 4 + 2, 10 = 3 + 3 + 3 + 1, one by one.
CHUNKS = [1 << 21, 4 * V, 3 * V + 2, 1]


@pytest.fixture(params=CHUNKS)
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.softmax.loss._CHUNK_SCORES", request.param)


def _layer(kernels: list[KernelSpec], penalty: float = 0.0) -> GeneralizedSoftmax:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, kernels, variance_penalty=penalty).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


def _batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(N, D, generator=generator, dtype=torch.float64, requires_grad=True)
    return hidden, torch.randint(V, (N,), generator=generator)


def _plain_loss(layer: GeneralizedSoftmax, hidden: Tensor, target: Tensor) -> Tensor:
    variance = layer.mixture_weights(hidden).var(-1, correction=0).sum()
    return layer.variance_penalty * variance - layer.log_prob(hidden).gather(1, target[:, None]).sum()


def _arguments(names: Sequence[str], count: int = 3) -> tuple[list[Kernel], Tensor, Tensor, Tensor, Tensor]:
    """Kernels, weight, components, log_prior and target of `mixture_cross_entropy`, float64, for gradcheck."""
    generator = torch.Generator().manual_seed(2)
    size = len(names)
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64)
    components = torch.randn(size, count, D, generator=generator, dtype=torch.float64)
    log_prior = torch.log_softmax(torch.randn(count, size, generator=generator, dtype=torch.float64), -1)
    target = torch.randint(V, (count,), generator=generator)
    leaves = (values.requires_grad_() for values in (weight, components, log_prior))
    return [build_kernel(name) for name in names], *leaves, target


# ---- hand-computed ----------------------------------------------------------------------------------------


def test_loss_and_gradients_by_hand() -> None:
    """lin, V = 2, d = 1, W = (ln 3, 0), h = 1: scores (ln 3, 0), p = (3/4, 1/4), target 1: loss ln 4.

    dL/dS = p - onehot(1) = (3/4, -3/4); dL/dW = dL/dS * h; dL/dh = 3/4 ln 3; dL/dlog_prior = -1.
    """
    weight = torch.tensor([[math.log(3)], [0.0]], requires_grad=True)
    components, log_prior = torch.ones(1, 1, 1, requires_grad=True), torch.zeros(1, 1, requires_grad=True)
    loss = mixture_cross_entropy([build_kernel("lin")], weight, components, log_prior, torch.tensor([1]))
    assert loss.item() == pytest.approx(math.log(4))
    loss.backward()
    torch.testing.assert_close(weight.grad, torch.tensor([[0.75], [-0.75]]))
    torch.testing.assert_close(components.grad, torch.tensor([[[0.75 * math.log(3)]]]))
    torch.testing.assert_close(log_prior.grad, torch.tensor([[-1.0]]))


# ---- against plain autograd -------------------------------------------------------------------------------


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("kernels", LAYERS, ids=str)
def test_value_and_all_gradients_equal_plain_autograd(kernels: list[KernelSpec]) -> None:
    layer, (hidden, target) = _layer(kernels, penalty=0.3), _batch()
    inputs = (hidden, *layer.parameters())
    ours, plain = layer.loss(hidden, target), _plain_loss(layer, hidden, target)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    gradients = zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(plain, inputs), strict=True)
    for gradient, expected in gradients:
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("names", [[name] for name in KERNELS] + [["lin", "log", "pow"]], ids=str)
def test_gradients_equal_finite_differences(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.softmax.loss._CHUNK_SCORES", 2 * V)  # 3 = 2 + 1 positions
    kernels, *leaves, target = _arguments(names)

    def loss(weight: Tensor, components: Tensor, log_prior: Tensor) -> Tensor:
        return mixture_cross_entropy(kernels, weight, components, log_prior, target)

    torch.autograd.gradcheck(loss, leaves)


def test_gradients_are_scaled_by_what_comes_from_above() -> None:
    *arguments, target = _arguments(["lin", "log"])
    leaves = tuple(arguments[1:])
    plain = torch.autograd.grad(mixture_cross_entropy(*arguments, target), leaves)
    scaled = torch.autograd.grad(-2.5 * mixture_cross_entropy(*arguments, target), leaves)
    for once, more in zip(plain, scaled, strict=True):
        torch.testing.assert_close(more, -2.5 * once)


def test_float32_gradients_are_as_good_as_plain_ones() -> None:
    layer, (hidden, target) = _layer(["lin", "log", "pow"]), _batch()
    truth = torch.autograd.grad(_plain_loss(layer, hidden, target), (hidden, *layer.parameters()))
    layer, hidden = layer.float(), hidden.detach().float().requires_grad_()
    ours = torch.autograd.grad(layer.loss(hidden, target), (hidden, *layer.parameters()))
    for gradient, expected in zip(ours, truth, strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=1e-5)


# ---- edges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", [["lin"], ["lin", "log"]], ids=str)
def test_an_empty_batch_costs_nothing(kernels: list[KernelSpec]) -> None:
    layer = _layer(kernels, penalty=0.1)
    hidden = torch.empty(0, D, dtype=torch.float64, requires_grad=True)
    loss = layer.loss(hidden, torch.empty(0, dtype=torch.long))
    assert loss.item() == 0
    loss.backward()
    for parameter in layer.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_gradients_are_finite_where_the_target_is_hopeless() -> None:
    """Scores of +-1e4: the target's probability underflows to 0 in float32."""
    weight = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    components, log_prior = torch.ones(2, 1, 1), torch.log(torch.tensor([[0.5, 0.5]]))
    kernels = [build_kernel("lin"), build_kernel("lin")]
    loss = mixture_cross_entropy(kernels, weight, components, log_prior, torch.tensor([1]))
    assert loss.item() == pytest.approx(2e4)
    loss.backward()
    # A float32 of 2e4 is 2e-3 apart from the next, hence the tolerance.
    torch.testing.assert_close(weight.grad, torch.tensor([[1.0], [-1.0]]), rtol=0, atol=2e-3)


def test_scores_are_never_all_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel is called on as many positions at a time as the chunk holds, and on each position once."""
    monkeypatch.setattr("training.softmax.loss._CHUNK_SCORES", 4 * V)
    rows: list[int] = []

    class Counting(KERNELS["lin"]):  # type: ignore[misc]
        def forward(self, weight: Tensor, hidden: Tensor) -> Any:
            rows.append(hidden.shape[0])
            return super().forward(weight, hidden)

    _, *arguments = _arguments(["lin"], count=N)
    mixture_cross_entropy([Counting()], *arguments).backward()
    assert rows == [4, 4, 2]


def test_autocast_gives_a_float32_loss_and_gradients() -> None:
    torch.manual_seed(0)
    layer, hidden = GeneralizedSoftmax(V, D, "lin,log"), torch.randn(N, D, requires_grad=True)
    target = torch.arange(N) % V
    exact = layer.loss(hidden, target)
    with torch.autocast("cpu", torch.bfloat16):
        loss = layer.loss(hidden, target)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=0.02)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in (*layer.parameters(), hidden))
