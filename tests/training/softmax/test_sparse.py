"""Tests of sparse-softmax: hand-computed cases, ties, properties, gradients, rubbish.

Shapes: `N` examples, `V` classes.
"""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from training.softmax import reference, sparse_softmax, sparse_softmax_cross_entropy, sparse_softmax_loss
from training.softmax.sparse import best_classes

SEEDS = st.integers(0, 2**32)


def _scores(seed: int = 0, *, count: int = 5, classes: int = 300, levels: int | None = None) -> Tensor:
    """float64 scores; with `levels`, that many different values only, so that ties abound."""
    generator = torch.Generator().manual_seed(seed)
    if levels is not None:
        return torch.randint(levels, (count, classes), generator=generator).double()
    return torch.randn(count, classes, generator=generator, dtype=torch.float64)


def test_two_of_three_by_hand() -> None:
    """Scores (0, ln 3, -5): of the two best, 1 / (1 + 3) and 3 / (1 + 3)."""
    scores = torch.tensor([[0.0, math.log(3), -5.0]])
    torch.testing.assert_close(sparse_softmax(scores, 2), torch.tensor([[0.25, 0.75, 0.0]]))
    losses = [sparse_softmax_loss(scores, torch.tensor([target]), 2).item() for target in range(3)]
    assert losses == pytest.approx([math.log(4), math.log(4 / 3), math.log(4) + 5])


def test_gradient_by_hand() -> None:
    """p - onehot, with p = (1/4, 3/4, 0) and target 2, which is not among the two best."""
    scores = torch.tensor([[0.0, math.log(3), -5.0]], requires_grad=True)
    sparse_softmax_loss(scores, torch.tensor([2]), 2).sum().backward()
    torch.testing.assert_close(scores.grad, torch.tensor([[0.25, 0.75, -1.0]]))


def test_one_class_is_a_perceptron_loss() -> None:
    scores = torch.tensor([[1.0, 4.0], [2.0, 0.5]])
    assert sparse_softmax(scores, 1).tolist() == [[0, 1], [1, 0]]
    assert sparse_softmax_loss(scores, torch.tensor([0, 0]), 1).tolist() == [3, 0]


def test_ties_go_to_the_lower_class() -> None:
    assert sparse_softmax(torch.zeros(1, 5), 2).tolist() == [[0.5, 0.5, 0, 0, 0]]
    assert best_classes(torch.tensor([[1.0, 3.0, 1.0, 1.0]]), 3)[1].sort().values.tolist() == [[0, 1, 2]]


@given(seed=SEEDS, k=st.integers(1, 400), levels=st.sampled_from([None, 2, 20]), classes=st.integers(1, 1500))
def test_equals_a_stable_sort(seed: int, k: int, levels: int | None, classes: int) -> None:
    scores = _scores(seed, count=3, classes=classes, levels=levels)
    probabilities = sparse_softmax(scores, k)
    torch.testing.assert_close(probabilities, torch.softmax(reference.best(scores, k), -1))
    assert (probabilities > 0).sum(-1).tolist() == [min(k, classes)] * 3
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, dtype=torch.float64))


class _Sparse(nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, scores: Tensor) -> Tensor:
        return sparse_softmax(scores, self.k)


# torch deprecates TorchScript; it stays an export format because users asked for it.
@pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning")
# The number of classes is that of the traced model, and may be frozen.
@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean:torch.jit.TracerWarning")
@pytest.mark.parametrize("k", [1, 4, 150, 299, 300])
@pytest.mark.parametrize("traced", [None, 2], ids=["traced without ties", "traced with ties"])
def test_a_trace_resolves_ties_and_other_counts(k: int, traced: int | None) -> None:
    """Whether there are ties, and how many examples, differs from the traced example."""
    with torch.no_grad():
        module = torch.jit.trace(_Sparse(k), _scores(count=3, levels=traced), check_trace=False)
        for count in (1, 2, 5):
            for levels in (None, 2, 20):
                scores = _scores(7, count=count, levels=levels)
                torch.testing.assert_close(module(scores), torch.softmax(reference.best(scores, k), -1))


def test_an_exported_program_has_no_branch() -> None:
    """ONNX has TopK, which ranks ties as we do; `tests/training/bundling` runs it."""
    batch = torch.export.Dim("batch")
    program = torch.export.export(_Sparse(4), (_scores(count=3),), dynamic_shapes=({0: batch},))
    for count in (1, 5):
        scores = _scores(8, count=count)
        torch.testing.assert_close(program.module()(scores), torch.softmax(reference.best(scores, 4), -1))


@given(seed=SEEDS, k=st.integers(1, 400), levels=st.sampled_from([None, 3]))
def test_loss_is_never_negative_and_shift_invariant(seed: int, k: int, levels: int | None) -> None:
    scores = _scores(seed, levels=levels)
    target = torch.randint(300, (5,), generator=torch.Generator().manual_seed(seed))
    losses = sparse_softmax_loss(scores, target, k)
    assert losses.min() >= -1e-12
    torch.testing.assert_close(sparse_softmax_loss(scores + 7.5, target, k), losses)


@given(seed=SEEDS, k=st.integers(1, 400))
def test_permuted_classes_permute_the_output(seed: int, k: int) -> None:
    scores, order = _scores(seed), torch.randperm(300, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(sparse_softmax(scores[:, order], k), sparse_softmax(scores, k)[:, order])


@pytest.mark.parametrize("k", [300, 301, 10**6])
def test_all_classes_is_plain_softmax(k: int) -> None:
    scores, target = _scores(), torch.arange(5)
    torch.testing.assert_close(sparse_softmax(scores, k), torch.softmax(scores, -1))
    torch.testing.assert_close(
        sparse_softmax_loss(scores, target, k), functional.cross_entropy(scores, target, reduction="none")
    )


@pytest.mark.parametrize("k", [1, 2, 20, 299, 300])
def test_gradients_equal_finite_differences(k: int) -> None:
    scores = _scores(3, count=2).requires_grad_()
    torch.autograd.gradcheck(lambda values: sparse_softmax_loss(values, torch.tensor([4, 100]), k), (scores,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_conventions_are_those_of_cross_entropy(reduction: Any, smoothing: float) -> None:
    scores, target = _scores(4), torch.tensor([3, -100, 5, 299, 0])
    options = {"reduction": reduction, "label_smoothing": smoothing}
    ours = sparse_softmax_cross_entropy(scores, target, 300, **options)
    torch.testing.assert_close(ours, functional.cross_entropy(scores, target, **options))


def test_label_smoothing_by_hand() -> None:
    """Scores (3, 2, 0), k = 2, target 2, smoothing 0.3: log(e^3 + e^2) - 0.7 * 0 - 0.3 * 5 / 3."""
    loss = sparse_softmax_cross_entropy(torch.tensor([[3.0, 2.0, 0.0]]), torch.tensor([2]), 2, label_smoothing=0.3)
    assert loss.item() == pytest.approx(math.log(math.exp(3) + math.exp(2)) - 0.5)


def test_bad_label_smoothing_is_named() -> None:
    with pytest.raises(ValueError, match="label_smoothing"):
        sparse_softmax_cross_entropy(_scores(), torch.arange(5), 5, label_smoothing=1.0)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_an_all_ignored_batch_gives_zero_and_zero_gradients(reduction: Any) -> None:
    scores = _scores().requires_grad_()
    loss = sparse_softmax_cross_entropy(scores, torch.full((5,), -100), 3, reduction=reduction)
    assert not loss.any()
    loss.sum().backward()
    assert scores.grad is not None
    assert not scores.grad.any()


@pytest.mark.parametrize("scale", [1e-5, 1e4])
def test_finite_at_every_scale(scale: float) -> None:
    scores = (_scores().float() * scale).requires_grad_()
    loss = sparse_softmax_loss(scores, torch.arange(5), 20).sum()
    assert bool(loss.isfinite())
    assert bool(torch.autograd.grad(loss, scores)[0].isfinite().all())


@pytest.mark.parametrize("k", [0, -1, 1.5, True, None])
def test_bad_k_is_named(k: Any) -> None:
    for call in (lambda: sparse_softmax(_scores(), k), lambda: sparse_softmax_loss(_scores(), torch.arange(5), k)):
        with pytest.raises(ValueError, match=r"\bk\b"):
            call()


@pytest.mark.parametrize("wrong", [-1, 300])
def test_bad_targets_are_named(wrong: int) -> None:
    with pytest.raises(ValueError, match="target"):
        sparse_softmax_loss(_scores(), torch.tensor([0, 1, wrong, 3, 4]), 5)


def test_bad_reduction_is_named() -> None:
    with pytest.raises(ValueError, match="reduction"):
        sparse_softmax_cross_entropy(_scores(), torch.arange(5), 5, reduction="avg")  # type: ignore[arg-type]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_scores_of_ignored_examples_may_be_anything(reduction: Any) -> None:
    scores = torch.randn(3, 9)
    scores[1] = torch.nan
    scores.requires_grad_()
    loss = sparse_softmax_cross_entropy(scores, torch.tensor([2, -100, 0]), 3, reduction=reduction)
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    assert loss.isfinite().all()
    assert torch.equal(gradient[1], torch.zeros(9))
