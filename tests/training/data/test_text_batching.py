"""Tests of batches of texts and their classes."""

import pytest
import torch

from training.data.batching import IGNORED
from training.data.text_batching import TextBatches

TEXTS = [[2, 9, 3], [2, 3], [2, 9, 9, 9, 3], [2, 8, 3]]
LABELS = [(1,), (0, 2), (), (1,)]


def test_batches_by_hand() -> None:
    first, second, third = TextBatches(TEXTS, LABELS, batch_tokens=6).epoch(0)
    assert first.tokens.tolist() == [[2, 3, 0], [2, 9, 3]]
    assert (first.lengths.tolist(), first.indices.tolist()) == ([2, 3], [1, 0])
    assert first.targets.tolist() == [[0, 2], [1, IGNORED]]
    assert int((first.targets != IGNORED).sum()) == 3
    assert (second.tokens.tolist(), second.indices.tolist()) == ([[2, 8, 3]], [3])
    assert third.targets.shape == (1, 0)
    assert int((third.targets != IGNORED).sum()) == 0


def test_every_text_comes_once_an_epoch_in_another_order() -> None:
    generator = torch.Generator().manual_seed(0)
    texts = [[1] * int(torch.randint(1, 9, (), generator=generator)) for _ in range(50)]
    batches = TextBatches(texts, [(0,)] * 50, batch_tokens=32, seed=3)
    epochs = [[index for batch in batches.epoch(number) for index in batch.indices.tolist()] for number in (0, 1, 0)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(50))
    assert epochs[0] == epochs[2] != epochs[1]
    assert all(batch.tokens.numel() <= 32 for batch in batches.epoch(0))
    assert len(batches) == len(list(batches.epoch(1)))


def test_no_text_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is none"):
        TextBatches([], [], batch_tokens=6)
