"""Tests of passes over the positions of one component: chunks give the same results as the whole.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import functools
import math

import pytest
import torch
from torch import Tensor

from training.softmax.elementwise import Slope, power
from training.softmax.kernels import KERNELS, Logarithm, build_kernel
from training.softmax.passes import Components, passes

N, V, D = 5, 7, 6


def _gradients(name: str, chunk: int) -> tuple[Tensor, ...]:
    """Scores `[N, V]` and, of their sum of squares, the gradients in hidden and weight."""
    generator = torch.Generator().manual_seed(0)
    weight, hidden = (torch.randn(count, D, generator=generator, dtype=torch.float64) for count in (V, N))
    parts = Components(kernels=[build_kernel(name)], weights=[weight], chunk_scores=chunk)
    sums = [torch.zeros_like(hidden), torch.zeros_like(weight)]
    (component,) = passes(parts, hidden, [weight], sums)
    scores = []
    for block in component.scored(torch.zeros(N, dtype=torch.long)):
        scores.append(block.scores.clone())
        block.backpropagate(2 * block.scores)
    component.finish()
    return torch.cat(scores), *sums


@pytest.mark.parametrize(("chunk", "block"), [(1, 1), (2 * V, V), (4 * V, 3 * V), (1 << 21, 2 * V), (1 << 21, 1 << 21)])
@pytest.mark.parametrize("name", KERNELS)
def test_chunks_and_blocks_of_positions_and_classes_add_up(
    name: str, chunk: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _gradients(name, 1 << 21)
    monkeypatch.setattr("training.softmax.passes._BLOCK_SCORES", block)
    monkeypatch.setattr("training.softmax.passes._CHUNK_WEIGHTS", 2 * D + 1)  # 7 = 2 + 2 + 2 + 1 classes
    for ours, expected in zip(_gradients(name, chunk), whole, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(("size", "positions"), [(1, 1), (2, 2), (6, 6), (16, 16), (64, 16)])
def test_a_chunk_has_as_many_positions_as_hidden_units_within_bounds(
    size: int, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 7 classes at most 16 * 7 scores, and not less than a 16th of them; without a dense gradient 8 * 7."""
    monkeypatch.setattr("training.softmax.passes._LEAST_ROWS", 8)
    weight, hidden = torch.zeros(V, size), torch.zeros(100, size)
    (component,) = passes(
        Components(kernels=[build_kernel("lin")], weights=[weight], chunk_scores=16 * V), hidden, [weight], None
    )
    first = next(component.chunks())
    assert (first.start, first.stop) == (0, positions)
    assert next(component.chunks(dense_gradient=False)).stop == 8


def test_a_chunk_of_another_device_has_the_most_scores() -> None:
    weight, hidden = torch.zeros(V, 2, device="meta"), torch.zeros(100, 2, device="meta")
    (component,) = passes(
        Components(kernels=[build_kernel("lin")], weights=[weight], chunk_scores=16 * V), hidden, [weight], None
    )
    assert next(component.chunks()).stop == 16


@pytest.mark.parametrize("name", KERNELS)
def test_scores_are_those_of_the_kernel(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, hidden = (torch.randn(count, D, generator=generator, dtype=torch.float64) for count in (V, N))
    (component,) = passes(Components(kernels=[build_kernel(name)], weights=[weight]), hidden, [weight], None)
    (block,) = component.scored(torch.zeros(N, dtype=torch.long))
    assert (block.part, block.shift) == (slice(0, N), None)
    expected = build_kernel(name)(weight, hidden)
    torch.testing.assert_close(block.scores, expected)
    torch.testing.assert_close(block.chosen, expected[:, 0])


@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.has_exponentials])
@pytest.mark.parametrize("offset", [None, 0.0, 800.0])
def test_exponentials_are_those_of_scores_and_have_their_gradient(name: str, offset: float | None) -> None:
    """A bias is large in one case, and its exponential alone would be infinite."""
    generator = torch.Generator().manual_seed(0)
    weight, hidden = (torch.randn(count, D, generator=generator, dtype=torch.float64) for count in (V, N))
    bias = None if offset is None else offset + torch.randn(V, generator=generator, dtype=torch.float64)
    target = torch.arange(N) % V
    found = []
    for exponentials in (False, True):
        tensors = [weight, *([] if bias is None else [bias])]
        sums = [torch.zeros_like(each) for each in (hidden, *tensors)]
        parts = Components(kernels=[build_kernel(name)], weights=[weight], bias=bias)
        (component,) = passes(parts, hidden, tensors, sums)
        (block,) = component.scored(target, exponentials=exponentials)
        assert (block.shift is not None) is exponentials
        scores = block.scores.clone() if block.shift is None else block.scores.log() + block.shift
        block.backpropagate(torch.randn(N, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
        component.finish()
        found.append((scores, block.chosen, *sums))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected)


class _Sharper(Logarithm, fused=True):
    def slope(self, hidden_size: int) -> Slope:
        return functools.partial(power, p=2.0)


def test_a_subclass_has_its_own_scores() -> None:
    """It does not have the exponentials of its parent."""
    weight, hidden = torch.ones(V, D), torch.zeros(N, D)
    (component,) = passes(Components(kernels=[_Sharper()], weights=[weight]), hidden, [weight], None)
    (block,) = component.scored(torch.zeros(N, dtype=torch.long), exponentials=True)
    torch.testing.assert_close(block.chosen, torch.full((N,), -float(D)))


def test_the_score_of_a_class_that_is_far_less_probable_than_others_is_exact() -> None:
    """The exponential of its score and bias is 0 in float32."""
    weight, hidden = torch.ones(V, D), torch.zeros(N, D)
    bias = torch.zeros(V)
    bias[0] = -200.0
    parts = Components(kernels=[build_kernel("log")], weights=[weight], bias=bias)
    (component,) = passes(parts, hidden, [weight, bias], None)
    (block,) = component.scored(torch.zeros(N, dtype=torch.long), exponentials=True)
    torch.testing.assert_close(block.chosen, torch.full((N,), -200.0 - math.log(1 + D)))


@pytest.mark.parametrize("option", [{"softcap": 2.0}, {"temperature": 2.0}])
def test_scores_that_are_not_those_of_the_kernel_are_not_exponentials(option: dict[str, float]) -> None:
    weight, hidden = torch.ones(V, D), torch.ones(N, D)
    parts = Components(kernels=[build_kernel("log")], weights=[weight], **option)
    (component,) = passes(parts, hidden, [weight], None)
    (block,) = component.scored(torch.zeros(N, dtype=torch.long), exponentials=True)
    assert block.shift is None


def test_blocks_whose_gradient_is_not_propagated_add_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.softmax.passes._BLOCK_SCORES", 2 * V)
    weight, hidden = torch.ones(V, D), torch.ones(N, D)
    parts = Components(kernels=[build_kernel("lin")], weights=[weight])
    sums = [torch.zeros_like(hidden), torch.zeros_like(weight)]
    (component,) = passes(parts, hidden, [weight], sums)
    for block in component.scored(torch.zeros(N, dtype=torch.long)):
        if block.part.start == 2:
            block.backpropagate(torch.ones_like(block.scores))
    assert sums[0].tolist() == [[V * (2 <= row < 4)] * D for row in range(N)]
    assert sums[1].tolist() == [[2.0] * D] * V


@pytest.mark.parametrize("name", ["lin", "log", "ssg", "mog"])
def test_chunks_use_the_memory_of_those_before_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.softmax.passes._BLOCK_SCORES", 2 * V)
    weight, hidden = torch.ones(V, D), torch.ones(4 * N, D)
    parts = Components(kernels=[build_kernel(name)], weights=[weight], chunk_scores=4 * V * (4 if name == "mog" else 1))
    (component,) = passes(parts, hidden, [weight], [torch.zeros_like(hidden), torch.zeros_like(weight)])
    places = []
    for block in component.scored(torch.zeros(4 * N, dtype=torch.long)):
        places.append(block.scores.data_ptr())
        block.backpropagate(block.scores)
    assert len(places) > N
    assert len(set(places)) <= 2
