"""Options of the loss against formulas that hold `[N, V]`, and the properties of a distribution.

Shapes: `N` positions, `V` classes, `d` hidden size, `K` components.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from training.softmax import GeneralizedSoftmax, reference

N, V, D = 10, 300, 6
LAYERS: dict[str, dict[str, Any]] = {
    "lin": {"kernels": "lin"},
    "biased": {"kernels": "log", "bias": True},
    "learnt": {"kernels": [{"name": "pol", "learnable": True}]},
    "mixture": {"kernels": "lin, pow", "bias": True},
    "capped": {"kernels": "lin", "softcap": 2.0, "bias": True},
    "capped mixture": {"kernels": "pow, wav", "softcap": 2.0},
    "sparse": {"kernels": "log", "sparse_k": 200},
    "capped, gathered": {"kernels": "lin", "sparse_k": 1, "softcap": 1.5, "bias": True},
    "gathered": {"kernels": "log", "sparse_k": 1},
    "sparse mixture": {"kernels": "lin, log", "sparse_k": 1},
    "entmax": {"kernels": "pow", "alpha": 1.5, "bias": True},
    "sparsemax": {"kernels": "lin", "alpha": 2.0, "softcap": 2.0},
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"weight": True},
    {"z_loss": 0.01},
    {"temperature": 2.5},
    {"label_smoothing": 0.2},
    {"label_smoothing": 0.2, "weight": True, "z_loss": 0.01, "temperature": 0.7},
]


def _layer(name: str) -> tuple[GeneralizedSoftmax, Tensor, Tensor]:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(V, D, **LAYERS[name]).double()
    with torch.no_grad():
        for key, parameter in layer.named_parameters():
            if "raw" not in key:
                parameter.normal_()
    target = torch.randint(V, (N,))
    target[3] = -100
    return layer, torch.randn(N, D, dtype=torch.float64, requires_grad=True), target


def _class_weights(options: dict[str, Any]) -> dict[str, Any]:
    weight = torch.rand(V, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.1
    return {**options, "weight": weight} if options.get("weight") else options


def _plain(layer: GeneralizedSoftmax, hidden: Tensor, target: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the loss of each position and the weight of each target, as the docstring of `loss` says."""
    smoothing, weight = options.get("label_smoothing", 0.0), options.get("weight", torch.ones(V, dtype=torch.float64))
    scores = [score / options.get("temperature", 1.0) for score in layer.scores(hidden)]
    kept = [score.topk(layer.sparse_k or V, dim=-1).values for score in scores]
    if layer.alpha != 1.0:
        normalizers = torch.stack([reference.potential(score, layer.alpha)[:, 0] for score in scores], dim=-1)
    else:
        normalizers = torch.stack([torch.logsumexp(best, dim=-1) for best in kept], dim=-1)
    joint = torch.stack([score - normalizers[:, k, None] for k, score in enumerate(scores)], dim=-1)
    log_prob = torch.logsumexp(joint + layer.log_mixture_weights(hidden)[:, None], dim=-1)
    valid = (target != -100).double()
    chosen, weights = target.clamp_min(0), weight[target.clamp_min(0)] * valid
    losses = -(1 - smoothing) * weights * log_prob.gather(1, chosen[:, None])[:, 0]
    losses = losses - smoothing * valid * (log_prob * weight).mean(-1)
    return losses + options.get("z_loss", 0.0) * valid * normalizers.square().mean(-1), weights


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options))
@pytest.mark.parametrize("name", LAYERS)
def test_loss_and_gradients(
    name: str, options: dict[str, Any], reduction: str, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU ignored positions are left out; where looking at them costs waiting they count 0 times."""
    if not looks:
        for module in ("loss", "mixture", "sparse", "alpha_entmax"):
            monkeypatch.setattr(f"training.softmax.{module}.readable", lambda values: False)
    monkeypatch.setattr("training.softmax.mixture._HELD_SCORES", 3 * V)
    monkeypatch.setattr("training.softmax.passes.CHUNK_SCORES", 3 * V)
    monkeypatch.setattr("training.softmax.passes._BLOCK_SCORES", 2 * V)
    layer, hidden, target = _layer(name)
    options = _class_weights(options)
    losses, weights = _plain(layer, hidden, target, **options)
    expected = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / weights.sum()}[reduction]
    found = layer.loss(hidden, target, reduction=reduction, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    factor = torch.linspace(1, 2, N, dtype=torch.float64)
    inputs = [hidden, *layer.parameters()]
    ours, plain = (torch.autograd.grad((factor * value).sum(), inputs) for value in (found, expected))
    for gradient, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("options", [{}, {"weight": True}, {"label_smoothing": 0.2, "weight": True}], ids=str)
def test_arguments_are_those_of_cross_entropy(options: dict[str, Any], reduction: str) -> None:
    layer, hidden, target = _layer("lin")
    options = _class_weights(options)
    expected = functional.cross_entropy(hidden @ layer.weight.t(), target, reduction=reduction, **options)
    found = layer.loss(hidden, target, reduction=reduction, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected)
    soft = torch.softmax(torch.randn(N, V, dtype=torch.float64), dim=-1)
    expected = functional.cross_entropy(hidden @ layer.weight.t(), soft, reduction=reduction, **options)
    torch.testing.assert_close(layer.loss(hidden, soft, reduction=reduction, **options), expected)  # type: ignore[arg-type]


class _Reads(TorchDispatchMode):
    """Counts operations that make Python wait for a device: reading a number, and results of a size set by values."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        waiting = (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.masked_select)
        if function.overloadpacket in waiting:
            self.found.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("name", LAYERS)
def test_no_value_is_read_where_that_costs_waiting(name: str, reduction: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("loss", "mixture", "sparse", "alpha_entmax"):
        monkeypatch.setattr(f"training.softmax.{module}.readable", lambda values: False)
    layer, hidden, target = _layer(name)
    with _Reads() as reads:
        layer.loss(hidden, target, reduction=reduction, label_smoothing=0.1, z_loss=0.1).sum().backward()
        layer.loss(hidden, target, reduction=reduction).sum().backward()
    assert reads.found == []


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("name", ["lin", "mixture"])
def test_nothing_to_predict(name: str, looks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.softmax.mixture.readable", lambda values: looks)
    layer, hidden, _ = _layer(name)
    assert layer.loss(hidden, torch.full((N,), -100), reduction="mean").item() == 0


@pytest.mark.parametrize("name", LAYERS)
def test_probabilities_as_targets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One-hot ones have the loss of the class."""
    monkeypatch.setattr("training.softmax.mixture._HELD_SCORES", 3 * V)
    layer, hidden, target = _layer(name)
    target = target.clamp_min(0)
    soft = functional.one_hot(target, V).double()
    options: dict[str, Any] = {"z_loss": 0.01, "temperature": 1.5, "reduction": "none"}
    found, expected = (layer.loss(hidden, wanted, **options) for wanted in (soft, target))
    torch.testing.assert_close(found, expected)
    inputs = [hidden, *layer.parameters()]
    torch.testing.assert_close(*(torch.autograd.grad(value.sum(), inputs) for value in (found, expected)))


@pytest.mark.parametrize("kernels", ["lin, pow", "2*lin"])
def test_a_class_that_all_components_exclude(kernels: str) -> None:
    torch.manual_seed(0)
    layer, hidden = GeneralizedSoftmax(V, D, kernels, bias=True), torch.randn(N, D)
    with torch.no_grad():
        assert layer.bias is not None
        layer.bias[7] = -torch.inf
    log_prob = layer.log_prob(hidden)
    assert torch.equal(log_prob[:, 7], torch.full((N,), -torch.inf))
    torch.testing.assert_close(log_prob.exp().sum(-1), torch.ones(N))
    gradients = torch.autograd.grad(layer.loss(hidden, torch.arange(8, 8 + N)), list(layer.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
    gradients = torch.autograd.grad(layer.log_prob(hidden)[:, 8:].sum(), [layer.weight, layer.projections])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", LAYERS)
def test_properties_of_the_distribution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.softmax.mixture._HELD_SCORES", 3 * V)
    layer, _, _ = _layer(name)
    hidden = torch.randn(2, 5, D, dtype=torch.float64)
    log_prob = layer.log_prob(hidden)
    entropy = -torch.nan_to_num(log_prob.exp() * log_prob).sum(-1)
    torch.testing.assert_close(layer.entropy(hidden), entropy)
    values, classes = layer.top_k(hidden, 4)
    torch.testing.assert_close(values, log_prob.topk(4).values)
    torch.testing.assert_close(log_prob.gather(-1, classes), values)
    assert torch.equal(layer.argmax(hidden), classes[..., 0])
    teacher, teacher_hidden = _layer("mixture")[0], torch.randn(2, 5, D, dtype=torch.float64)
    if layer.sparse_k is None:
        wanted = teacher.log_prob(teacher_hidden, temperature=2.0)
        difference = wanted - layer.log_prob(hidden, temperature=2.0)
        found = layer.kl_divergence(hidden, teacher, teacher_hidden, temperature=2.0)
        torch.testing.assert_close(found, (wanted.exp() * difference).sum(-1))
    torch.testing.assert_close(
        layer.kl_divergence(hidden, layer, hidden), torch.zeros(2, 5, dtype=torch.float64), atol=1e-12, rtol=0
    )


def test_samples_follow_the_distribution() -> None:
    torch.manual_seed(0)
    layer, hidden = GeneralizedSoftmax(5, D, "lin, pow"), torch.randn(1, D)
    drawn = layer.sample(hidden.expand(20_000, D), generator=torch.Generator().manual_seed(1))
    found = torch.bincount(drawn, minlength=5) / len(drawn)
    torch.testing.assert_close(found, layer(hidden)[0].exp(), atol=0.015, rtol=0)
    assert layer.sample(torch.randn(2, 3, D)).shape == (2, 3)
