"""Batches of texts and their classes.

Shapes: `B` texts, `T` tokens, `L` classes of the text that has most.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.data.batching import IGNORED, similar_lengths
from training.data.pair_batching import pad

__all__ = ["TextBatch", "TextBatches"]


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Texts of similar lengths."""

    tokens: Tensor
    """`[B, T]`, padded with 0."""
    lengths: Tensor
    """`[B]`"""
    targets: Tensor
    """`[B, L]`: each text's classes, `IGNORED` where it has fewer."""
    indices: Tensor
    """`[B]`: places of the texts in their split."""

    @property
    def num_targets(self) -> int:
        return int((self.targets != IGNORED).sum())


class TextBatches:
    """Texts of similar lengths together, at most `batch_tokens` positions (padding included) a batch."""

    def __init__(
        self,
        texts: Sequence[Sequence[int]],
        labels: Sequence[Sequence[int]],
        *,
        batch_tokens: int,
        seed: int | None = None,
    ) -> None:
        """Tokens and classes of each text. Without `seed` the order is by length. `ValueError` where there is none."""
        if not texts:
            raise ValueError("texts: there is none")
        self._texts = texts
        self._labels = labels
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._length = len(self._groups(0))

    def __len__(self) -> int:
        return self._length

    def epoch(self, number: int) -> Iterator[TextBatch]:
        return map(self._batch, self._groups(number))

    def _groups(self, epoch: int) -> list[list[int]]:
        return similar_lengths([(len(text),) for text in self._texts], self._batch_tokens, self._seed, epoch)

    def _batch(self, indices: list[int]) -> TextBatch:
        texts = [self._texts[index] for index in indices]
        return TextBatch(
            tokens=pad(texts, 0),
            lengths=torch.tensor([len(text) for text in texts]),
            targets=pad([self._labels[index] for index in indices], IGNORED),
            indices=torch.tensor(indices),
        )
