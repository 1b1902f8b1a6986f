"""Tests of passes over the positions of one component: chunks give the same results as the whole.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import pytest
import torch
from torch import Tensor

from training.softmax.kernels import KERNELS, build_kernel
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
    for _, own, backpropagate in component.scored(torch.zeros(N, dtype=torch.long)):
        scores.append(own.clone())
        backpropagate(2 * own)
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
    ((part, scores, _),) = component.scored(torch.zeros(N, dtype=torch.long))
    assert part == slice(0, N)
    torch.testing.assert_close(scores, build_kernel(name)(weight, hidden))


def test_blocks_whose_gradient_is_not_propagated_add_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.softmax.passes._BLOCK_SCORES", 2 * V)
    weight, hidden = torch.ones(V, D), torch.ones(N, D)
    parts = Components(kernels=[build_kernel("lin")], weights=[weight])
    sums = [torch.zeros_like(hidden), torch.zeros_like(weight)]
    (component,) = passes(parts, hidden, [weight], sums)
    for part, scores, backpropagate in component.scored(torch.zeros(N, dtype=torch.long)):
        if part.start == 2:
            backpropagate(torch.ones_like(scores))
    assert sums[0].tolist() == [[V * (2 <= row < 4)] * D for row in range(N)]
    assert sums[1].tolist() == [[2.0] * D] * V


@pytest.mark.parametrize("name", ["lin", "log", "ssg", "mog"])
def test_chunks_use_the_memory_of_those_before_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.softmax.passes._BLOCK_SCORES", 2 * V)
    weight, hidden = torch.ones(V, D), torch.ones(4 * N, D)
    parts = Components(kernels=[build_kernel(name)], weights=[weight], chunk_scores=4 * V * (4 if name == "mog" else 1))
    (component,) = passes(parts, hidden, [weight], [torch.zeros_like(hidden), torch.zeros_like(weight)])
    places = []
    for _, scores, backpropagate in component.scored(torch.zeros(4 * N, dtype=torch.long)):
        places.append(scores.data_ptr())
        backpropagate(scores)
    assert len(places) > N
    assert len(set(places)) <= 2
