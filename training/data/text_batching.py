"""Batches of texts and their classes.

Shapes: `B` texts, `T` tokens, `L` classes of the text that has most.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.data.batching import IGNORED, ExampleBatch, LengthBatches
from training.data.pair_batching import pad

__all__ = ["TextBatch", "TextBatches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBatch(ExampleBatch):
    """Texts of similar lengths and their classes; the targets are `[B, L]`."""

    tokens: Tensor
    """`[B, T]`, padded with 0."""
    lengths: Tensor
    """`[B]`"""


class TextBatches(LengthBatches[TextBatch]):
    """Texts of similar lengths together."""

    def __init__(
        self,
        texts: Sequence[Sequence[int]],
        labels: Sequence[Sequence[int]],
        *,
        batch_tokens: int,
        seed: int | None = None,
    ) -> None:
        """Take the tokens and classes of each text. Without `seed` the order is by length.

        Raises `ValueError` if there is no text.
        """
        self._texts = texts
        self._labels = labels
        lengths = np.fromiter(map(len, texts), np.int32, len(texts))
        super().__init__("texts", lengths[:, None], batch_tokens=batch_tokens, seed=seed)

    def collate(self, indices: list[int]) -> TextBatch:
        texts = [self._texts[index] for index in indices]
        return TextBatch(
            tokens=pad(texts, 0),
            lengths=torch.tensor([len(text) for text in texts]),
            targets=pad([self._labels[index] for index in indices], IGNORED),
            indices=torch.tensor(indices),
        )
