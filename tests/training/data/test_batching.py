"""Tests of both ways to batch a text: hand-written cases, then what holds for any text.

Shapes: `B` sequences, `T` time steps.
"""

import tracemalloc
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.data.batching import IGNORED, Batch, RedrawnBatches, SentenceBatches, StreamBatches
from training.data.mapped_tokens import MappedTokens

END = 9
X = IGNORED
SENTENCES = st.lists(st.lists(st.integers(0, 8), max_size=7), min_size=1, max_size=30)


def _sentences(batches: list[Batch]) -> list[tuple[int, ...]]:
    """The sentences of sentence batches, ends cut off."""
    return [tuple(row[row != X].tolist()[:-1]) for batch in batches for row in batch.targets]


def test_many_sentences_need_little_memory() -> None:
    """A list of tuples and lists of indices would be more than 100 bytes a sentence."""
    sentences = MappedTokens([1] * (number % 30) for number in range(20_000))
    tracemalloc.start()
    try:
        batches = SentenceBatches(sentences, end_id=END, batch_tokens=1000, seed=1)
        first = batches.plan(3)[0]()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert first.inputs.numel() <= 1000
    assert most < 40 * len(sentences)


# ---- sentences, by hand -----------------------------------------------------------------------------------


def test_sentence_batches_by_hand() -> None:
    """Lengths with their ends 2, 3, 1: sorted 1, 2, 3; two rows of two are 4 positions, three of three are 9 > 6."""
    batches = list(SentenceBatches([[1], [2, 3], []], end_id=END, batch_tokens=6).epoch(0))
    assert [batch.inputs.tolist() for batch in batches] == [[[END, END], [END, 1]], [[END, 2, 3]]]
    assert [batch.targets.tolist() for batch in batches] == [[[END, X], [1, END]], [[2, 3, END]]]
    assert [int((batch.targets != IGNORED).sum()) for batch in batches] == [3, 3]
    assert not any(batch.continues for batch in batches)


def test_a_batch_may_hold_exactly_the_budget() -> None:
    batches = list(SentenceBatches([[1], [2], [3], [4]], end_id=END, batch_tokens=6).epoch(0))
    assert [batch.inputs.numel() for batch in batches] == [6, 2]


def test_a_sentence_above_the_budget_is_alone() -> None:
    batches = list(SentenceBatches([[1, 2, 3, 4], [5]], end_id=END, batch_tokens=3).epoch(0))
    assert _sentences(batches) == [(5,), (1, 2, 3, 4)]
    assert [len(batch.inputs) for batch in batches] == [1, 1]


def test_no_sentence_is_an_error() -> None:
    with pytest.raises(ValueError, match="sentences"):
        SentenceBatches([], end_id=END, batch_tokens=8)


# ---- sentences, always ------------------------------------------------------------------------------------


@given(SENTENCES, st.integers(1, 40), st.none() | st.integers(0, 9), st.integers(0, 3))
def test_every_sentence_is_in_an_epoch_once(
    sentences: list[list[int]], budget: int, seed: int | None, epoch: int
) -> None:
    batches = SentenceBatches(sentences, end_id=END, batch_tokens=budget, seed=seed)
    found = list(batches.epoch(epoch))
    assert Counter(_sentences(found)) == Counter(map(tuple, sentences))
    assert len(found) == len(batches)


@given(SENTENCES, st.integers(1, 40), st.integers(0, 9))
def test_the_budget_is_kept(sentences: list[list[int]], budget: int, seed: int) -> None:
    for batch in SentenceBatches(sentences, end_id=END, batch_tokens=budget, seed=seed).epoch(0):
        assert batch.inputs.numel() <= budget or len(batch.inputs) == 1


@given(SENTENCES, st.integers(1, 40))
def test_inputs_are_targets_shifted_behind_an_end(sentences: list[list[int]], budget: int) -> None:
    for batch in SentenceBatches(sentences, end_id=END, batch_tokens=budget, seed=0).epoch(0):
        assert batch.inputs[:, 0].tolist() == [END] * len(batch.inputs)
        shifted, before = batch.inputs[:, 1:], batch.targets[:, :-1]
        assert torch.equal(shifted, torch.where(before == X, END, before))


@given(SENTENCES, st.integers(1, 40), st.integers(0, 9), st.integers(0, 3))
def test_an_epoch_number_always_gives_the_same_batches(
    sentences: list[list[int]], budget: int, seed: int, epoch: int
) -> None:
    batches = SentenceBatches(sentences, end_id=END, batch_tokens=budget, seed=seed)
    first = [batch.inputs.tolist() for batch in batches.epoch(epoch)]
    fresh = SentenceBatches(sentences, end_id=END, batch_tokens=budget, seed=seed)
    assert [batch.inputs.tolist() for batch in batches.epoch(epoch)] == first
    assert [batch.inputs.tolist() for batch in fresh.epoch(epoch)] == first


def _order(seed: int | None, epoch: int) -> list[tuple[int, ...]]:
    sentences = [[word] * length for length in range(6) for word in range(8)]
    return _sentences(list(SentenceBatches(sentences, end_id=END, batch_tokens=14, seed=seed).epoch(epoch)))


def test_epochs_and_seeds_have_other_orders() -> None:
    assert _order(seed=1, epoch=0) != _order(seed=1, epoch=1)
    assert _order(seed=1, epoch=0) != _order(seed=2, epoch=0)


def test_shuffled_batches_are_not_ordered_by_length() -> None:
    lengths = [len(sentence) for sentence in _order(seed=1, epoch=0)]
    assert lengths != sorted(lengths)


def test_without_a_seed_every_epoch_is_ordered_by_length() -> None:
    assert _order(seed=None, epoch=0) == _order(seed=None, epoch=3)
    assert [len(sentence) for sentence in _order(seed=None, epoch=0)] == [n for n in range(6) for _ in range(8)]


# ---- streams, by hand -------------------------------------------------------------------------------------


def test_stream_batches_by_hand() -> None:
    """Text 1 2 9 3 9 4 9 (7 tokens) in two streams of 4, the last one padded, in windows of 3."""
    batches = StreamBatches([[1, 2], [3], [4]], end_id=END, num_streams=2, steps=3)
    first, second = batches.epoch(0)
    assert len(batches) == 2
    assert first.inputs.tolist() == [[END, 1, 2], [3, END, 4]]
    assert first.targets.tolist() == [[1, 2, END], [END, 4, END]]
    assert second.inputs.tolist() == [[END], [END]]
    assert second.targets.tolist() == [[3], [X]]
    assert [batch.continues for batch in (first, second)] == [False, True]
    assert [int((batch.targets != IGNORED).sum()) for batch in (first, second)] == [6, 1]


def test_too_short_a_text_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 tokens are too few for 2 streams"):
        StreamBatches([[1]], end_id=END, num_streams=2, steps=3)


# ---- streams, always --------------------------------------------------------------------------------------


@given(SENTENCES.filter(lambda s: sum(map(len, s)) + len(s) > 4), st.integers(1, 4), st.integers(1, 9))
def test_streams_restore_the_text(sentences: list[list[int]], num_streams: int, steps: int) -> None:
    text = [token for sentence in sentences for token in (*sentence, END)]
    batches = StreamBatches(sentences, end_id=END, num_streams=num_streams, steps=steps)
    found = list(batches.epoch(0))
    targets = torch.cat([batch.targets for batch in found], 1).flatten()
    inputs = torch.cat([batch.inputs for batch in found], 1).flatten()
    assert targets[: len(text)].tolist() == text
    assert set(targets[len(text) :].tolist()) <= {X}
    assert inputs[: len(text)].tolist() == [END, *text[:-1]]
    assert len(found) == len(batches)
    assert all(batch.inputs.shape[1] <= steps for batch in found)
    assert [batch.continues for batch in found] == [False] + [True] * (len(found) - 1)


def test_streams_have_one_order() -> None:
    batches = StreamBatches([[1, 2], [3, 4], [5]], end_id=END, num_streams=2, steps=2)
    first, later = (list(batches.epoch(number)) for number in (0, 3))
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, later, strict=True))


def test_redrawn_examples_are_those_of_the_epoch() -> None:
    drawn = [[[2]] * 4, [[3]] * 6]
    batches = RedrawnBatches(lambda epoch: SentenceBatches(drawn[epoch], end_id=1, batch_tokens=6, seed=1))
    assert len(batches) == 2
    for epoch, sentences in enumerate(drawn):
        found = [row for batch in batches.epoch(epoch) for row in batch.inputs.tolist()]
        assert found == [[1, *sentence] for sentence in sentences]
