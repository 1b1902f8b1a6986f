"""Tests of the kernels: hand-computed scores, properties, the reference, gradients, extreme inputs.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from training.softmax import GeneralizedSoftmax, reference
from training.softmax.kernel import Kernel
from training.softmax.kernels import KERNELS, build_kernel

WEIGHT = torch.tensor([[1.0, 0.0], [3.0, -1.0]])
HIDDEN = torch.tensor([[2.0, 1.0], [1.0, 0.0]])


def _wav(distance: float) -> float:
    return math.cos(distance / 2) * math.exp(-distance / 4)


def _ssg(distance: float, variance: float) -> float:
    return -0.5 * (math.log(2 * math.pi * variance) + distance / variance)


# Distances D = ||W_v - h||^2:
#   h = (2, 1): (1-2)^2 + (0-1)^2 = 2     (3-2)^2 + (-1-1)^2 = 5
#   h = (1, 0): 0, h being W_0            (3-1)^2 + (-1-0)^2 = 5
BY_HAND = [
    ("lin", {}, [[2.0, 5.0], [1.0, 3.0]]),  # 1*2 + 0*1, 3*2 - 1*1; 1*1 + 0*0, 3*1 - 1*0
    ("log", {}, [[-math.log(3), -math.log(6)], [0.0, -math.log(6)]]),  # -log(D + 1)
    ("log", {"p": 1}, [[-math.log(1 + 2**0.5), -math.log(1 + 5**0.5)], [0.0, -math.log(1 + 5**0.5)]]),
    ("pow", {}, [[-2.0, -5.0], [0.0, -5.0]]),  # -D
    ("pow", {"p": 4}, [[-4.0, -25.0], [0.0, -25.0]]),  # -D^2
    ("pow", {"p": 1}, [[-(2**0.5), -(5**0.5)], [0.0, -(5**0.5)]]),
    ("pol", {"alpha": 2, "c": 1, "p": 3}, [[125.0, 1331.0], [27.0, 343.0]]),  # (2 * 2 + 1)^3, (2 * 5 + 1)^3 ...
    ("rbf", {"gamma": 0.5}, [[math.exp(-1), math.exp(-2.5)], [1.0, math.exp(-2.5)]]),
    ("wav", {"a": 2, "b": 4}, [[math.cos(1) / math.e**0.5, _wav(5)], [1.0, _wav(5)]]),  # cos(D / 2) exp(-D / 4)
    # Norms: of words 1 and sqrt(10), of contexts sqrt(5) and 1.
    ("cos", {"scale": 2}, [[4 / 5**0.5, 10 / 50**0.5], [2.0, 6 / 10**0.5]]),
    # Means 1, 3 and 2, 1; log-variances 0, -1 and 1, 0, so variances add up to 1 + e, 1/e + e; 2, 1/e + 1.
    ("ssg", {}, [[_ssg(1, 1 + math.e), _ssg(1, 1 / math.e + math.e)], [_ssg(0, 2), _ssg(4, 1 / math.e + 1)]]),
]

# One case at least for each kernel, p != 2 among them.
CASES: list[tuple[str, dict[str, float]]] = [
    ("lin", {}),
    ("log", {}),
    ("log", {"p": 0.5}),
    ("log", {"p": 3}),
    ("pow", {}),
    ("pow", {"p": 1}),
    ("pow", {"p": 2.5}),
    ("pol", {"alpha": 0.3, "c": 0.5, "p": 3}),
    ("pol", {"alpha": 1.0, "c": 1.0, "p": 1}),
    ("rbf", {"gamma": 0.2}),
    ("ssg", {}),
    ("mog", {"num_gaussians": 2}),
    ("mog", {"num_gaussians": 4}),
    ("hpb", {}),
    ("hpb", {"eps": 0.1}),
    ("wav", {"a": 3.0, "b": 20.0}),
    ("cos", {"scale": 3.0}),
    ("vmf", {"scale": 1.0}),
    ("vmf", {"scale": 4.0}),
]
DISTANCE_KERNELS = ["log", "pow"]
DIRECTIONAL_KERNELS = ["cos", "vmf"]

FEW = settings(max_examples=20)  # of each kernel


def _vectors(seed: int, *, count: int = 7, classes: int = 11, size: int = 8, scale: float = 1.0) -> list[Tensor]:
    """Weight `[V, d]` and hidden `[N, d]` in float64."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((classes, size), (count, size))
    return [scale * torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]


# ---- hand-computed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "hyperparameters", "expected"), BY_HAND)
def test_scores_by_hand(name: str, hyperparameters: dict[str, float], expected: list[list[float]]) -> None:
    scores = build_kernel(name, **hyperparameters)(WEIGHT, HIDDEN)
    torch.testing.assert_close(scores, torch.tensor(expected), rtol=1e-6, atol=1e-6)


def test_von_mises_fisher_scores_by_hand() -> None:
    """In 3 dimensions the mean of exp(kappa x) over the sphere is sinh(kappa) / kappa; concentrations are 2 and 4."""
    weight = torch.tensor([[2.0, 0.0, 0.0], [0.0, -4.0, 0.0]], dtype=torch.float64)
    hidden = torch.tensor([[5.0, 0.0, 0.0], [3.0, 4.0, 0.0]], dtype=torch.float64)
    masses = [math.log(math.sinh(2) / 2), math.log(math.sinh(4) / 4)]
    expected = [[2.0 - masses[0], -masses[1]], [1.2 - masses[0], -3.2 - masses[1]]]
    scores = build_kernel("vmf", scale=1)(weight, hidden)
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-11)


# ---- properties -------------------------------------------------------------------------------------------


def test_every_kernel_has_a_case() -> None:
    assert set(KERNELS) == {name for name, _ in CASES}


@pytest.mark.parametrize("name", KERNELS)
@FEW
@given(seed=st.integers(0, 2**32))
def test_classes_and_positions_are_scored_one_by_one(name: str, seed: int) -> None:
    """A permutation of classes permutes scores, and a position's scores depend on no other position."""
    weight, hidden = _vectors(seed)
    kernel, order = build_kernel(name), torch.randperm(11, generator=torch.Generator().manual_seed(seed))
    scores = kernel(weight, hidden)
    torch.testing.assert_close(kernel(weight[order], hidden), scores[:, order])
    torch.testing.assert_close(kernel(weight, hidden[3:4]), scores[3:4])


@pytest.mark.parametrize("name", DISTANCE_KERNELS)
@FEW
@given(seed=st.integers(0, 2**32), p=st.floats(0.5, 4))
def test_distance_kernels_see_differences_only(name: str, seed: int, p: float) -> None:
    weight, hidden = _vectors(seed)
    kernel, shift = build_kernel(name, p=p), hidden[0]
    torch.testing.assert_close(kernel(weight + shift, hidden + shift), kernel(weight, hidden), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", DISTANCE_KERNELS)
@FEW
@given(seed=st.integers(0, 2**32), p=st.floats(0.5, 4))
def test_nearer_words_score_higher_and_none_above_zero(name: str, seed: int, p: float) -> None:
    weight, hidden = _vectors(seed)
    scores, distances = build_kernel(name, p=p)(weight, hidden), torch.cdist(hidden, weight)
    assert torch.equal(scores.argsort(1, descending=True), distances.argsort(1))
    assert scores.max() <= 0


@pytest.mark.parametrize("name", DIRECTIONAL_KERNELS)
@FEW
@given(seed=st.integers(0, 2**32), factor=st.floats(1e-3, 1e3))
def test_directional_kernels_ignore_the_norm_of_contexts(name: str, seed: int, factor: float) -> None:
    weight, hidden = _vectors(seed)
    kernel = build_kernel(name)
    torch.testing.assert_close(kernel(weight, factor * hidden), kernel(weight, hidden), rtol=1e-9, atol=1e-9)


# ---- references -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "hyperparameters"), CASES)
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_float64_scores_equal_the_formula(name: str, hyperparameters: dict[str, float], scale: float) -> None:
    weight, hidden = _vectors(1, scale=scale)
    kernel = build_kernel(name, **hyperparameters)
    expected = reference.scores(kernel, weight, hidden)
    torch.testing.assert_close(kernel(weight, hidden), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "hyperparameters"), CASES)
def test_float32_scores_are_as_good_as_the_formula(name: str, hyperparameters: dict[str, float]) -> None:
    weight, hidden = _vectors(2, count=50, classes=100, size=32)
    kernel = build_kernel(name, **hyperparameters)
    truth = reference.scores(kernel, weight, hidden)
    narrow = reference.scores(kernel, weight.float(), hidden.float())
    ours = kernel(weight.float(), hidden.float())
    assert ours.dtype == torch.float32
    assert bool(((ours - truth).abs() <= (narrow - truth).abs() + 2e-6 * (1 + truth.abs())).all())


@pytest.mark.parametrize(("name", "hyperparameters"), CASES)
def test_gradients_equal_finite_differences(name: str, hyperparameters: dict[str, float]) -> None:
    weight, hidden = (values.requires_grad_() for values in _vectors(3, count=3, classes=4, size=8, scale=0.5))
    torch.autograd.gradcheck(build_kernel(name, **hyperparameters), (weight, hidden))


@pytest.mark.parametrize(("name", "hyperparameters"), CASES)
@pytest.mark.parametrize("fast", [True, False])
def test_gradients_equal_those_of_the_reference(
    name: str, hyperparameters: dict[str, float], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both those written out and those of the plain formula, which learnt hyperparameters take."""
    weight, hidden = (values.requires_grad_() for values in _vectors(3))
    upstream = torch.randn(7, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = build_kernel(name, **hyperparameters)
    if not fast:
        monkeypatch.setattr(Kernel, "differentiates_fast", lambda self: False)
    ours, expected = kernel(weight, hidden), reference.scores(kernel, weight, hidden)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    gradients = (torch.autograd.grad(scores, (weight, hidden), upstream) for scores in (ours, expected))
    for gradient, expected_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "hyperparameters"),
    [
        ("log", {"p": 1.5}),
        ("pow", {"p": 3}),
        ("pol", {"alpha": 0.5}),
        ("rbf", {}),
        ("wav", {"a": 2.0}),
        ("cos", {}),
        ("vmf", {"scale": 3.0}),
    ],
)
def test_learnable_hyperparameters_start_at_their_value_and_have_gradients(
    name: str, hyperparameters: dict[str, float]
) -> None:
    weight, hidden = _vectors(8, count=3, classes=4)
    fixed = build_kernel(name, hidden_size=8, **hyperparameters)
    learnt = build_kernel(name, hidden_size=8, learnable=True, **hyperparameters).double()
    assert learnt.hyperparameters == pytest.approx(fixed.hyperparameters)
    torch.testing.assert_close(learnt(weight, hidden), fixed(weight, hidden), rtol=1e-5, atol=1e-5)
    parameters = tuple(learnt.parameters())
    assert len(parameters) == len(learnt.defaults)
    torch.autograd.gradcheck(lambda *_: learnt(weight, hidden), parameters)


def test_a_kernel_without_real_hyperparameters_has_nothing_to_learn() -> None:
    with pytest.raises(ValueError, match="learnable"):
        build_kernel("lin", learnable=True)


# ---- extreme inputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTANCE_KERNELS)
@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distance_zero_scores_zero_with_a_finite_gradient(name: str, p: float, dtype: torch.dtype) -> None:
    """The slope of D^(p/2) is infinite at D = 0 below p = 2."""
    weight = torch.tensor([[1.0, 2.0, -3.0], [0.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    hidden = weight.detach().clone().requires_grad_()
    scores = build_kernel(name, p=p)(weight, hidden)
    torch.testing.assert_close(scores.diagonal(), torch.zeros(2, dtype=dtype), rtol=0, atol=1e-4)
    for gradient in torch.autograd.grad(scores.sum(), (weight, hidden)):
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("name", DIRECTIONAL_KERNELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_vectors_without_a_direction_score_0_with_a_finite_gradient(name: str, dtype: torch.dtype) -> None:
    vectors = torch.tensor([[1.0, 2.0, -3.0], [0.0, 0.0, 0.0]], dtype=dtype)
    weight, hidden = (vectors.clone().requires_grad_() for _ in range(2))
    scores = build_kernel(name, scale=2.0)(weight, hidden)
    assert scores[:, 1].abs().max() < 1e-15
    assert scores[0, 0] > 1
    for gradient in torch.autograd.grad(scores.sum(), (weight, hidden)):
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize(("name", "hyperparameters"), CASES)
def test_rounded_distance_zero_is_finite(name: str, hyperparameters: dict[str, float]) -> None:
    """Rows whose squared distance is a rounding error, of either sign before it is clamped."""
    weight = _vectors(4, classes=64, size=32)[0].float().requires_grad_()
    hidden = weight.detach().clone().requires_grad_()
    scores = build_kernel(name, **hyperparameters)(weight, hidden)
    loss = -torch.log_softmax(scores, -1).diagonal().sum()
    for values in (scores, *torch.autograd.grad(loss, (weight, hidden))):
        assert bool(values.isfinite().all())


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("exponent", range(-5, 5))
def test_scores_and_gradients_are_finite_at_every_scale(name: str, exponent: int) -> None:
    vectors = _vectors(5, size=16, scale=10.0**exponent)
    weight, hidden = (values.float().requires_grad_() for values in vectors)
    scores = build_kernel(name)(weight, hidden)
    loss = -torch.log_softmax(scores, -1)[:, 0].sum()
    for values in (scores, *torch.autograd.grad(loss, (weight, hidden))):
        assert bool(values.isfinite().all())


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_float32_scores(name: str, dtype: torch.dtype) -> None:
    weight, hidden = _vectors(6)
    scores = build_kernel(name)(weight.to(dtype), hidden.to(dtype))
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.double(), build_kernel(name)(weight, hidden), rtol=0.05, atol=0.3)


class _LargestTensor(TorchDispatchMode):
    """Notes how many elements the largest result of any operator has."""

    elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for item in result if isinstance(result, tuple | list) else (result,):
            if isinstance(item, Tensor):
                self.elements = max(self.elements, item.numel())
        return result


@pytest.mark.parametrize(("name", "hyperparameters"), CASES)
def test_nothing_is_ever_larger_than_the_scores(name: str, hyperparameters: dict[str, float]) -> None:
    """N = 40, V = 50, d = 8: scores have 2000 elements, [N, V, d] would have 16000."""
    weight, hidden = (values.requires_grad_() for values in _vectors(7, count=40, classes=50))
    with _LargestTensor() as largest:
        build_kernel(name, **hyperparameters)(weight, hidden).sum().backward()
    assert largest.elements == 40 * 50


# ---- construction -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_built_again_from_its_hyperparameters(name: str) -> None:
    kernel = build_kernel(name)
    assert type(build_kernel(kernel.name, **kernel.hyperparameters)) is KERNELS[name]
    sized = build_kernel(name, hidden_size=8)
    assert build_kernel(name, **sized.hyperparameters).hyperparameters == sized.hyperparameters


def test_defaults_of_the_specification() -> None:
    values = {name: build_kernel(name, hidden_size=16).hyperparameters for name in KERNELS}
    assert values == {
        "lin": {},
        "log": {"p": 2},
        "pow": {"p": 2},
        "pol": {"alpha": 0.25, "c": 1, "p": 2},
        "rbf": {"gamma": 1 / 16},
        "ssg": {},
        "mog": {"num_gaussians": 2},
        "hpb": {"eps": 1e-5},
        "wav": {"a": 1, "b": 16},
        "cos": {"scale": 16},
        "vmf": {"scale": 16},
    }


def test_the_scale_of_cosines_lets_a_class_reach_its_probability() -> None:
    """Class vectors of a regular simplex have the cosine -1 / (V - 1) to each other."""
    for classes in (2, 3, 77):
        scale = build_kernel("cos", num_classes=classes).hyperparameters["scale"]
        scores = torch.full((classes,), -scale / (classes - 1))
        scores[0] = scale
        assert torch.softmax(scores, 0)[0].item() == pytest.approx(0.999, abs=1e-5)
    assert GeneralizedSoftmax(77, 4, "cos").components()[0].hyperparameters == {"scale": scale}
    assert build_kernel("cos", num_classes=1).hyperparameters["scale"] > 1


def test_hyperparameters_show_what_was_asked_for() -> None:
    assert build_kernel("lin").hyperparameters == {}
    assert build_kernel("pow", p=1.5).hyperparameters == {"p": 1.5}
    assert repr(build_kernel("pow", p=1.5)) == "Power(p=1.5)"


@pytest.mark.parametrize(("name", "largest_ratio"), [("rbf", math.e), ("wav", math.e**2)])
@pytest.mark.parametrize("seed", range(3))
def test_bounded_scores_bound_the_probability(name: str, largest_ratio: float, seed: int) -> None:
    """At the distances of these vectors, `rbf` comes near the bound; `wav` has scores of both signs."""
    generator = torch.Generator().manual_seed(seed)
    vectors = (30 if name == "rbf" else 1) * torch.randn(50, 8, generator=generator, dtype=torch.float64)
    largest = build_kernel(name)(vectors, vectors).softmax(dim=1).max().item()
    assert 1 / 50 < largest <= largest_ratio / (largest_ratio + 49) * (1 + 1e-12)


def test_unknown_kernel_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown kernel 'linear'") as caught:
        build_kernel("linear")
    assert all(name in str(caught.value) for name in KERNELS)


def test_a_name_that_is_no_string_is_an_error() -> None:
    with pytest.raises(ValueError, match="the name of a kernel must be a string, not 3"):
        build_kernel(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DISTANCE_KERNELS)
@pytest.mark.parametrize("p", [0, -1.0, math.nan, math.inf, "2", True])
def test_bad_hyperparameter_is_named(name: str, p: Any) -> None:
    with pytest.raises(ValueError, match=r"\bp\b") as caught:
        build_kernel(name, p=p)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", KERNELS)
def test_unknown_hyperparameter_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="'sharpness'") as caught:
        build_kernel(name, sharpness=2)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("rbf", {"gamma": 0}),
        ("rbf", {"gamma": -1}),
        ("pol", {"p": 1.5}),
        ("pol", {"p": 0}),
        ("pol", {"alpha": 0}),
        ("mog", {"num_gaussians": 0}),
        ("mog", {"num_gaussians": 1.5}),
        ("mog", {"num_gaussians": None}),
        ("pol", {"p": None}),
        ("pol", {"p": math.inf}),
        ("pol", {"p": True}),
        ("hpb", {"eps": 1}),
        ("wav", {"a": 0}),
        ("cos", {"scale": 0}),
    ],
)
def test_bad_values_are_named(name: str, bad: dict[str, Any]) -> None:
    (argument,) = bad
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        build_kernel(name, **bad)


@pytest.mark.parametrize(("count", "size"), [(3, 8), (8, 8), (2, 7)])
def test_gaussians_must_divide_the_hidden_size(count: int, size: int) -> None:
    with pytest.raises(ValueError, match="num_gaussians"):
        build_kernel("mog", num_gaussians=count)(torch.zeros(2, size), torch.zeros(1, size))
