"""Tests of batches of sentence pairs: hand-written cases, then what holds for any pairs."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.data.batching import IGNORED
from training.data.pair_batching import PairBatch, PairBatches, pad

END = 9
X = IGNORED
SIDE = st.lists(st.integers(0, 8), min_size=1, max_size=7)
PAIRS = st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=30)


def test_pad_fills_up_to_the_longest() -> None:
    assert pad([[1], [], [2, 3]], 7).tolist() == [[1, 7], [7, 7], [2, 3]]


def test_a_batch_by_hand() -> None:
    """Sorted by the target's length, then by the source's."""
    (batch,) = PairBatches([([1, 2], [3]), ([4], [5, 6]), ([7], [8])], end_id=END, batch_tokens=99).epoch(0)
    assert batch.indices.tolist() == [2, 0, 1]
    assert batch.source.tolist() == [[7, END, END], [1, 2, END], [4, END, END]]
    assert batch.source_lengths.tolist() == [2, 3, 2]
    assert batch.inputs.tolist() == [[END, 8, END], [END, 3, END], [END, 5, 6]]
    assert batch.targets.tolist() == [[8, END, X], [3, END, X], [5, 6, END]]
    assert int((batch.targets != IGNORED).sum()) == 7


@pytest.mark.parametrize(("budget", "sizes"), [(3, [1, 1]), (5, [1, 1]), (6, [2])])
def test_ends_count_and_so_does_the_longer_side(budget: int, sizes: list[int]) -> None:
    """Two pairs, the longer side of one of them 3 with its end."""
    pairs = [([1, 2], [3]), ([4], [5])]
    batches = PairBatches(pairs, end_id=END, batch_tokens=budget).epoch(0)
    assert [len(batch.indices) for batch in batches] == sizes


def test_a_pair_above_the_budget_is_alone() -> None:
    batches = list(PairBatches([([1], [2]), ([1, 2, 3, 4], [5]), ([6], [7])], end_id=END, batch_tokens=4).epoch(0))
    assert [batch.indices.tolist() for batch in batches] == [[0, 2], [1]]


def test_a_wide_pair_does_not_narrow_the_batches_after_it() -> None:
    """The source of the first pair has 5 tokens; those after it have 3 and share batches again."""
    pairs = [([1] * 4, [2])] + [([1, 1], [2, 2])] * 4
    batches = PairBatches(pairs, end_id=END, batch_tokens=6).epoch(0)
    assert [batch.indices.tolist() for batch in batches] == [[0], [1, 2], [3, 4]]


def test_no_pair_is_an_error() -> None:
    with pytest.raises(ValueError, match="pairs: there is none"):
        PairBatches([], end_id=END, batch_tokens=8)


# ---- always -----------------------------------------------------------------------------------------------


def _pairs(batches: list[PairBatch]) -> dict[int, tuple[list[int], list[int]]]:
    """What batches hold, by place, ends cut off."""
    found = {}
    for batch in batches:
        for row, index in enumerate(batch.indices.tolist()):
            source = batch.source[row, : batch.source_lengths[row] - 1].tolist()
            found[index] = (source, batch.targets[row][batch.targets[row] != X].tolist()[:-1])
    return found


Budget, Seed, Epoch = st.integers(1, 40), st.none() | st.integers(0, 9), st.integers(0, 3)


@given(PAIRS, Budget, Seed, Epoch)
def test_every_pair_is_in_an_epoch_once(
    pairs: list[tuple[list[int], list[int]]], budget: int, seed: int | None, epoch: int
) -> None:
    batches = PairBatches(pairs, end_id=END, batch_tokens=budget, seed=seed)
    found = list(batches.epoch(epoch))
    assert Counter(index for batch in found for index in batch.indices.tolist()) == Counter(range(len(pairs)))
    assert _pairs(found) == dict(enumerate(pairs))
    assert len(found) == len(batches)


@given(PAIRS, Budget, Seed, Epoch)
def test_no_batch_is_above_the_budget_unless_it_is_one_pair(
    pairs: list[tuple[list[int], list[int]]], budget: int, seed: int | None, epoch: int
) -> None:
    for batch in PairBatches(pairs, end_id=END, batch_tokens=budget, seed=seed).epoch(epoch):
        assert len(batch.indices) == 1 or max(batch.source.numel(), batch.targets.numel()) <= budget


@given(PAIRS, Budget, Seed, Epoch)
def test_inputs_are_targets_moved_by_one(
    pairs: list[tuple[list[int], list[int]]], budget: int, seed: int | None, epoch: int
) -> None:
    for batch in PairBatches(pairs, end_id=END, batch_tokens=budget, seed=seed).epoch(epoch):
        assert (batch.inputs[:, 0] == END).all()
        real = batch.targets[:, :-1] != X
        last = batch.targets[:, :-1] == END
        assert torch.equal(batch.inputs[:, 1:][real & ~last], batch.targets[:, :-1][real & ~last])
        assert ((batch.targets == END).sum(1) == 1).all()
        width = torch.arange(batch.source.shape[1])
        assert (batch.source[width >= batch.source_lengths[:, None] - 1] == END).all()


@given(PAIRS, Budget, st.integers(0, 9))
def test_cuts_are_the_same_in_every_epoch(pairs: list[tuple[list[int], list[int]]], budget: int, seed: int) -> None:
    batches = PairBatches(pairs, end_id=END, batch_tokens=budget, seed=seed)
    shapes = [Counter(tuple(batch.source.shape + batch.targets.shape) for batch in batches.epoch(n)) for n in range(3)]
    assert shapes[0] == shapes[1] == shapes[2]


def test_epochs_differ_and_can_be_had_again() -> None:
    pairs = [([index % 9], [index % 8]) for index in range(60)]
    batches = PairBatches(pairs, end_id=END, batch_tokens=12, seed=3)
    first, again, second = ([batch.indices.tolist() for batch in batches.epoch(number)] for number in (0, 0, 1))
    assert first == again != second
    assert Counter(map(frozenset, first)) != Counter(map(frozenset, second))  # not the same batches in another order
