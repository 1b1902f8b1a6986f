"""Batches of sentence pairs for translation.

Shapes: `B` pairs, `S` source tokens, `T` target tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.data.batching import IGNORED, ExampleBatch, LengthBatches
from training.data.token_links import TokenLinks

__all__ = ["Pair", "PairBatch", "PairBatches", "pad"]

Pair = tuple[Sequence[int], Sequence[int]]
"""Source and target ids, without ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBatch(ExampleBatch):
    """Source texts and their target texts, of similar lengths; each target ends with the end token."""

    source: Tensor
    """`[B, S]`, each ends with the end token; padded with it too."""
    source_lengths: Tensor
    """`[B]`, ends included."""
    inputs: Tensor
    """`[B, T]`: the end token, then the target."""
    links: Tensor | None = None
    """`[B, T, S]`: a distribution over source positions for each target position, zeros for positions without links."""


def pad(sequences: Sequence[Sequence[int]], filler: int) -> Tensor:
    """Return sequences padded to the longest, `[B, T]`."""
    rows = [torch.tensor(sequence, dtype=torch.long) for sequence in sequences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=filler)


class PairBatches(LengthBatches[PairBatch]):
    """Pairs of similar lengths together."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        *,
        end_id: int,
        batch_tokens: int,
        seed: int | None = None,
        references: Sequence[Sequence[str]] | None = None,
        links: TokenLinks | None = None,
    ) -> None:
        """Without `seed` the order is by length; `references` are all right texts for each source, if known.

        `links` are those of the same pairs, which batches then have. Raises `ValueError` if there is no pair.
        """
        self._pairs = pairs
        self._end_id = end_id
        self.references = references
        self._links = links
        lengths = (len(side) for source, target in pairs for side in (target, source))
        widths = np.fromiter(lengths, np.int32, 2 * len(pairs)).reshape(-1, 2) + 1
        super().__init__("pairs", widths, batch_tokens=batch_tokens, seed=seed)

    def collate(self, indices: list[int]) -> PairBatch:
        end = self._end_id
        sources = [[*self._pairs[index][0], end] for index in indices]
        targets = [self._pairs[index][1] for index in indices]
        source, inputs = pad(sources, end), pad([[end, *target] for target in targets], end)
        return PairBatch(
            source=source,
            source_lengths=torch.tensor([len(source) for source in sources]),
            inputs=inputs,
            targets=pad([[*target, end] for target in targets], IGNORED),
            indices=torch.tensor(indices),
            links=None if self._links is None else self._links.batch(indices, source.shape[1], inputs.shape[1]),
        )
