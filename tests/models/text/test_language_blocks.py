"""Tests of integers of which equal blocks are stored once."""

from array import array

import numpy as np
import pytest

from models.text.language import _BLOCK, _SharedBlocks


def test_entries_are_those_of_the_sequence():
    blocks = np.random.default_rng(0).integers(0, 1 << 32, (5, _BLOCK), dtype=np.uint32)
    values = array("I", blocks[[0, 3, 3, 1, 0, 4, 2, 3]].tobytes())
    shared = _SharedBlocks(values)
    assert [shared[index] for index in range(len(values))] == list(values)
    assert len(shared._blocks) == 5 * _BLOCK


def test_blocks_of_one_hash_are_not_mixed_up(monkeypatch):
    monkeypatch.setattr("models.text.language._HASH_MULTIPLIER", 1)  # the hash is the sum of the entries
    values = array("I", [*range(_BLOCK), *range(_BLOCK)[::-1]])
    with pytest.raises(ValueError, match="different blocks have the same hash"):
        _SharedBlocks(values)
