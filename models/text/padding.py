"""Padding sequences of tokens to a batch.

Shapes: `B` texts, `T` tokens.
"""

from collections.abc import Sequence

import numpy as np

from models.backend import Array

__all__ = ["padded"]


def padded(sequences: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Return right-padded tokens `[B, T]` and their lengths `[B]`; T is the longest length."""
    lengths = np.array([len(sequence) for sequence in sequences])
    tokens = np.zeros((len(sequences), int(lengths.max())), np.int64)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = sequence
    return {"tokens": tokens, "lengths": lengths}
