"""Tests of the generalized softmax against hand-computed cases, its invariants and eq. 1-3 and 14 of the paper.

Shapes: `N` positions, `V` classes, `d` hidden size, `K` components.
"""

import math
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training.softmax import KERNELS, PAPER_KERNELS, GeneralizedSoftmax, build_kernel, reference
from training.softmax.mixture import KernelSpec, parse_kernels

LAYERS: list[list[KernelSpec]] = [
    *([name] for name in KERNELS),
    [{"name": "pow", "p": 1.5}],
    ["2*lin", "log"],
    ["lin", {"name": "log", "p": 3}, {"name": "pow", "p": 1}],
]
SEEDS = st.integers(0, 2**32)
FEW = settings(max_examples=20)  # of each layer


def _layer(
    kernels: str | list[KernelSpec], *, seed: int = 0, classes: int = 9, size: int = 6, **options: Any
) -> GeneralizedSoftmax:
    """A float64 layer whose parameters, the prior's among them, are all random."""
    layer = GeneralizedSoftmax(classes, size, kernels, **options).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer


def _hidden(seed: int = 1, *, count: int = 6, size: int = 6, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---- parse_kernels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("lin", [{"name": "lin"}]),
        ("3*lin,log", [{"name": "lin"}] * 3 + [{"name": "log"}]),
        (" 2 * lin , pow ", [{"name": "lin"}, {"name": "lin"}, {"name": "pow"}]),
        (["lin", "2*log"], [{"name": "lin"}, {"name": "log"}, {"name": "log"}]),
        (["lin,log"], [{"name": "lin"}, {"name": "log"}]),
        ([{"name": "pow", "p": 1.5}, "lin"], [{"name": "pow", "p": 1.5}, {"name": "lin"}]),
        (("64*lin",), [{"name": "lin"}] * 64),
        ("mix2", [{"name": "lin"}] * 3 + [{"name": "log"}]),
        (["mix5"], [{"name": "lin"}] * 2 + [{"name": "rbf"}] * 2),
        ("mixbig", [{"name": name} for name in PAPER_KERNELS]),
        ("mos", [{"name": "lin"}] * 9),
    ],
)
def test_kernels_are_parsed(spec: Any, expected: list[dict[str, Any]]) -> None:
    assert parse_kernels(spec) == expected


@pytest.mark.parametrize(
    "rubbish",
    ["", ",", "lin,", "lin log", "*lin", "lin*3", "-1*lin", "1.5*lin", "0*lin", "65*lin", [], [{"p": 2}], [{}]],
)
def test_rubbish_is_refused(rubbish: Any) -> None:
    with pytest.raises(ValueError, match=r"^kernels: "):
        parse_kernels(rubbish)


# ---- construction -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_one_component_has_a_weight_and_nothing_else(name: str) -> None:
    layer = GeneralizedSoftmax(7, 4, [name])
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {"weight": (7, 4)}
    assert layer.num_components == 1


def test_a_mixture_has_a_prior_and_a_projection_for_each_component() -> None:
    layer = GeneralizedSoftmax(7, 4, "2*lin,log")
    shapes = {name: tuple(parameter.shape) for name, parameter in layer.named_parameters()}
    assert shapes == {"weight": (7, 4), "prior": (4, 3), "projections": (3, 4, 4)}
    assert [kernel.name for kernel in layer.components()] == ["lin", "lin", "log"]


def test_a_fresh_mixture_weighs_its_components_evenly() -> None:
    weights = GeneralizedSoftmax(7, 4, "3*lin,log").mixture_weights(torch.randn(5, 4))
    torch.testing.assert_close(weights, torch.full((5, 4), 0.25))


def test_fresh_word_vectors_have_norm_one_on_average() -> None:
    torch.manual_seed(0)
    squared = GeneralizedSoftmax(4000, 64).weight.square().sum(-1)
    assert squared.mean().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"variance_penalty": -0.1}, "variance_penalty"),
        ({"variance_penalty": math.nan}, "variance_penalty"),
        ({"balance_penalty": -0.1}, "balance_penalty"),
        ({"component_dropout": 1.0}, "component_dropout"),
        ({"kernels": "lin,rubbish"}, "unknown kernel 'rubbish'"),
        ({"kernels": [{"name": "log", "p": -1}]}, "p of kernel 'log'"),
        ({"kernels": "mog", "hidden_size": 3}, "num_gaussians"),
        ({"sparse_k": 0}, "sparse_k"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"untied": 0}, "untied"),
        ({"untied": "half"}, "untied"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneralizedSoftmax(**{"num_classes": 3, "hidden_size": 2, **arguments})


# ---- hand-computed ----------------------------------------------------------------------------------------


def _half_and_half() -> GeneralizedSoftmax:
    """Kernels lin and pow, V = 2, d = 1; at h = 1: pi = (4/5, 1/5), h_1 = tanh(atanh(1/2)) = 1/2, h_2 = 0."""
    layer = GeneralizedSoftmax(2, 1, "lin,pow").double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2 * math.log(3)], [0.0]]))
        layer.prior.copy_(torch.tensor([[math.log(4), 0.0]], dtype=torch.float64))
        layer.projections.copy_(torch.tensor([[[math.atanh(0.5)]], [[0.0]]], dtype=torch.float64))
    return layer


def test_log_prob_by_hand() -> None:
    """lin: scores (2 ln 3 * 1/2, 0) = (ln 3, 0), softmax (3/4, 1/4). pow: scores (-(2 ln 3)^2, 0).

    p(0) = 4/5 * 3/4 + 1/5 * q, with q = e^-(2 ln 3)^2 / (e^-(2 ln 3)^2 + 1), and p(1) = 4/5 * 1/4 + 1/5 (1 - q).
    """
    bump = math.exp(-((2 * math.log(3)) ** 2))
    q = bump / (bump + 1)
    log_prob = _half_and_half().log_prob(torch.ones(1, 1, dtype=torch.float64))
    assert log_prob.exp().tolist()[0] == pytest.approx([0.6 + 0.2 * q, 0.2 + 0.2 * (1 - q)], rel=1e-6)


def test_variance_penalty_by_hand() -> None:
    """At h = 1, pi = (4/5, 1/5): variance ((3/10)^2 + (3/10)^2) / 2 = 9/100; at h = 0, pi = (1/2, 1/2): 0.

    `loss` is a sum over positions: rho = 10 adds 10 * (0.09 + 0) = 0.9.
    """
    layer, hidden = _half_and_half(), torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    target = torch.tensor([0, 1])
    plain = layer.loss(hidden, target).item()
    layer.variance_penalty = 10.0
    assert layer.loss(hidden, target).item() - plain == pytest.approx(0.9, rel=1e-9)
    assert layer.mixture_variance(hidden[:, None]).tolist() == [[pytest.approx(0.09)], [pytest.approx(0.0)]]


def test_balance_penalty_by_hand() -> None:
    """pi = (4/5, 1/5) at h = 1 and (1/2, 1/2) at h = 0, mean (13/20, 7/20), divergence 0.65 ln 1.3 + 0.35 ln 0.7.

    Positions that are ignored have no part in it; target probabilities have it too.
    """
    layer, hidden = _half_and_half(), torch.tensor([[1.0], [0.0], [5.0]], dtype=torch.float64)
    target, divergence = torch.tensor([0, 1, -100]), 0.65 * math.log(1.3) + 0.35 * math.log(0.7)
    plain = layer.loss(hidden, target, reduction="none")
    soft = layer.loss(hidden[:2], torch.eye(2, dtype=torch.float64), reduction="none")
    layer.balance_penalty = 10.0
    expected = torch.tensor([10 * divergence, 10 * divergence, 0.0], dtype=torch.float64)
    torch.testing.assert_close(layer.loss(hidden, target, reduction="none") - plain, expected)
    assert layer.loss(hidden, target).item() == pytest.approx((plain + expected).sum().item())
    both = layer.loss(hidden[:2], torch.eye(2, dtype=torch.float64), reduction="none")
    torch.testing.assert_close(both - soft, expected[:2])
    with torch.no_grad():
        layer.prior.mul_(2000)  # one component has the weight 0 at h = 1
    loss = layer.loss(hidden[:1].requires_grad_(), target[:1])
    assert loss.item() == pytest.approx(10 * math.log(2) + plain_loss_of_one(layer, hidden[:1], target[:1]))
    assert all(bool(each.isfinite().all()) for each in torch.autograd.grad(loss, [layer.prior, layer.weight]))


def plain_loss_of_one(layer: GeneralizedSoftmax, hidden: Tensor, target: Tensor) -> float:
    return -layer.target_log_prob(hidden, target).sum().item()


def test_components_are_left_out_in_training() -> None:
    """At h = 1 the target has 3/4 by the first component, with the weight 4/5, and q by the second, with 1/5.

    With the probability 1/2 each: both or none are left out in half of the cases, which have the plain loss, and one of
    them in a quarter each, in which the other has the weight 1.
    """
    layer = _half_and_half()
    hidden, target = torch.ones(4000, 1, dtype=torch.float64), torch.zeros(4000, dtype=torch.long)
    bump = math.exp(-((2 * math.log(3)) ** 2))
    first, second = math.log(0.75), math.log(bump / (bump + 1))
    whole = layer.target_log_prob(hidden[:1], target[:1]).item()
    layer.component_dropout = 0.5
    torch.manual_seed(0)
    losses = layer.loss(hidden, target, reduction="none")
    counts = [(losses + value).abs().lt(1e-5).float().mean().item() for value in (whole, first, second)]
    assert counts == pytest.approx([0.5, 0.25, 0.25], abs=0.03)
    layer.eval()
    torch.testing.assert_close(layer.loss(hidden, target), torch.tensor(-4000 * whole, dtype=torch.float64))


def test_one_component_has_nothing_to_penalize_or_leave_out() -> None:
    torch.manual_seed(0)
    layer, hidden, target = GeneralizedSoftmax(5, 3, "log"), torch.randn(4, 3), torch.arange(4)
    plain = layer.loss(hidden, target).item()
    layer.variance_penalty = layer.balance_penalty = 10.0
    layer.component_dropout = 0.5
    assert layer.loss(hidden, target).item() == plain


# ---- properties -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", LAYERS, ids=str)
@FEW
@given(seed=SEEDS, scale=st.sampled_from([1e-4, 1.0, 100.0]))
def test_probabilities_sum_to_one(kernels: list[KernelSpec], seed: int, scale: float) -> None:
    log_prob = _layer(kernels, seed=seed).log_prob(_hidden(seed, scale=scale))
    torch.testing.assert_close(log_prob.logsumexp(-1), torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernels", LAYERS, ids=str)
@FEW
@given(seed=SEEDS)
def test_permuted_classes_permute_the_distribution(kernels: list[KernelSpec], seed: int) -> None:
    layer, hidden = _layer(kernels, seed=seed), _hidden(seed + 1)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
    expected = layer.log_prob(hidden)[:, order]
    with torch.no_grad():
        layer.weight.copy_(layer.weight[order])
    torch.testing.assert_close(layer.log_prob(hidden), expected)


@pytest.mark.parametrize("name", KERNELS)
def test_a_mixture_of_equal_components_is_the_component(name: str) -> None:
    layer, hidden = _layer(f"3*{name}"), _hidden()
    with torch.no_grad():
        layer.projections.copy_(layer.projections[:1].expand(3, -1, -1))
    alone = build_kernel(name, num_classes=9)(layer.weight, torch.tanh(hidden @ layer.projections[0]))
    torch.testing.assert_close(layer.log_prob(hidden), torch.log_softmax(alone, -1))


@pytest.mark.parametrize("name", KERNELS)
def test_a_single_kernel_sees_the_context_vector_itself(name: str) -> None:
    layer, hidden = _layer([name]), _hidden()
    torch.testing.assert_close(
        layer.log_prob(hidden), torch.log_softmax(build_kernel(name, num_classes=9)(layer.weight, hidden), dim=-1)
    )


@pytest.mark.parametrize("kernels", LAYERS, ids=str)
@FEW
@given(seed=SEEDS)
def test_target_log_prob_is_one_entry_of_log_prob(kernels: list[KernelSpec], seed: int) -> None:
    layer, hidden = _layer(kernels, seed=seed), _hidden(seed + 1)
    target = torch.randint(9, (6,), generator=torch.Generator().manual_seed(seed))
    expected = layer.log_prob(hidden).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(layer.target_log_prob(hidden, target), expected)


@pytest.mark.parametrize("kernels", ["lin", "lin,pow", "2*lin,log"])
@pytest.mark.parametrize("k", [1, 3, 9, 20])
def test_sparse_target_log_prob_is_one_entry_too(kernels: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minus infinity outside the k best, also where positions are looked at a few at a time."""
    monkeypatch.setattr("training.softmax.mixture._HELD_SCORES", 50)
    layer, hidden, target = _layer(kernels), _hidden(), torch.tensor([0, 3, 8, 8, 1, 5])
    plain = layer.target_log_prob(hidden, target)
    layer.sparse_k = k
    expected = layer.log_prob(hidden).gather(1, target[:, None])[:, 0]
    assert bool(expected.isinf().any()) == (k < 9)
    torch.testing.assert_close(layer.target_log_prob(hidden, target), expected)
    torch.testing.assert_close(layer.target_log_prob(hidden, target, sparse=False), plain)


def test_sparse_target_log_prob_by_hand() -> None:
    """One kernel lin, scores (0, ln 3, -5) at h = 1, the two best kept: log 1/4, log 3/4, and nothing."""
    layer = GeneralizedSoftmax(3, 1, sparse_k=2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0], [math.log(3)], [-5.0]]))
    hidden, target = torch.ones(3, 1, dtype=torch.float64), torch.arange(3)
    expected = torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64)
    torch.testing.assert_close(layer.target_log_prob(hidden, target).exp(), expected, rtol=1e-6, atol=0)
    whole = torch.tensor([1.0, 3.0, math.exp(-5)], dtype=torch.float64) / (4 + math.exp(-5))
    torch.testing.assert_close(layer.target_log_prob(hidden, target, sparse=False).exp(), whole, rtol=1e-6, atol=0)


def test_what_a_layer_is_can_be_read() -> None:
    assert "sparse_k=3, untied=2" in repr(GeneralizedSoftmax(9, 4, "2*lin", sparse_k=3, untied=2))


@pytest.mark.parametrize("kernels", LAYERS, ids=str)
def test_loss_is_the_summed_target_log_prob(kernels: list[KernelSpec]) -> None:
    layer, hidden, target = _layer(kernels), _hidden(), torch.tensor([0, 3, 8, 8, 1, 5])
    torch.testing.assert_close(layer.loss(hidden, target), -layer.target_log_prob(hidden, target).sum())


# ---- the paper's equations --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"sparse_k": 3}, {"untied": "full"}, {"untied": 2}], ids=str)
@pytest.mark.parametrize("kernels", ["pow", "2*lin", "lin,log,pow", "2*pow,3*log", "mixbig"])
def test_log_prob_equals_the_paper(kernels: str, options: dict[str, Any]) -> None:
    layer, hidden = _layer(kernels, seed=4, **options), _hidden(5)
    torch.testing.assert_close(layer.log_prob(hidden), reference.log_prob(layer, hidden), rtol=1e-10, atol=1e-10)


def test_float32_log_prob_is_close_to_float64() -> None:
    layer, hidden = _layer("lin,log,pow", classes=200, size=16), _hidden(size=16)
    truth = layer.log_prob(hidden)
    torch.testing.assert_close(layer.float().log_prob(hidden.float()).double(), truth, rtol=1e-4, atol=1e-4)


# ---- log space --------------------------------------------------------------------------------------------


def _confident() -> tuple[GeneralizedSoftmax, Tensor]:
    """float32, both components lin with scores (0, 100, -100) at h = 1 (tanh(20) is 1)."""
    layer = GeneralizedSoftmax(3, 1, "2*lin")
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0], [100.0], [-100.0]]))
        layer.projections.fill_(20.0)
    return layer, torch.ones(1, 1)


def test_small_probabilities_have_no_floor() -> None:
    """`log(p + 1e-8)` would end at -18.4."""
    layer, hidden = _confident()
    expected = torch.tensor([[-100.0, 0.0, -200.0]])
    torch.testing.assert_close(layer.log_prob(hidden), expected)
    targets = layer.target_log_prob(hidden.expand(3, 1), torch.arange(3))
    torch.testing.assert_close(targets, expected[0])
    assert layer.loss(hidden, torch.tensor([2])).item() == pytest.approx(200)


def test_probability_mass_stays_one_in_float32() -> None:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(20_000, 16, "lin,log,pow")
    mass = layer.log_prob(3 * torch.randn(8, 16)).double().exp().sum(-1)
    torch.testing.assert_close(mass, torch.ones(8, dtype=torch.float64), rtol=0, atol=2e-6)


@pytest.mark.parametrize("kernels", ["lin", "lin,log,pow"])
def test_bfloat16_context_vectors_give_float32_log_probabilities(kernels: str) -> None:
    torch.manual_seed(0)
    layer, hidden = GeneralizedSoftmax(50, 16, kernels), torch.randn(4, 16)
    truth = layer.log_prob(hidden)
    with torch.autocast("cpu", torch.bfloat16):
        log_prob, targets = layer.log_prob(hidden), layer.target_log_prob(hidden, torch.arange(4))
    assert log_prob.dtype == targets.dtype == torch.float32
    torch.testing.assert_close(log_prob, truth, rtol=0.02, atol=0.05)


# ---- bias -------------------------------------------------------------------------------------------------


def test_a_bias_makes_lin_an_affine_layer() -> None:
    layer, hidden = _layer("lin", bias=True), _hidden()
    expected = torch.nn.functional.linear(hidden, layer.weight, layer.bias).log_softmax(-1)
    torch.testing.assert_close(layer.log_prob(hidden), expected)


def test_a_class_whose_bias_is_minus_infinity_has_probability_0() -> None:
    layer = _layer("pow", bias=True)
    assert layer.bias is not None
    with torch.no_grad():
        layer.bias[3] = -math.inf
    found = layer.log_prob(_hidden()).exp()
    assert (found[:, 3] == 0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("kernels", ["lin", "ssg", "mog", "lin, ssg, mog"])
@pytest.mark.parametrize("untied", [None, "full", 3])
def test_a_new_layer_prefers_no_class_for_all_contexts(kernels: str, untied: Literal["full"] | int | None) -> None:
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(50, 64, kernels, untied=untied)
    offsets = layer.log_prob(2 * torch.rand(200, 64) - 1).mean(0)
    assert offsets.std().item() < 0.15
