"""Models that read a source once and write a target token by token.

Shapes: `B` sources, `S` source tokens, `T` target tokens, `d` hidden size.
"""

import abc
from collections.abc import Mapping

import torch
from torch import Tensor

from training.networks.softmax_model import SoftmaxModel
from training.networks.transformer import Cache, Decoded, Memory
from training.softmax import Source

__all__ = ["SequenceToSequenceModel"]


class SequenceToSequenceModel(SoftmaxModel, abc.ABC):
    """A target starts after the end token."""

    reads_slot_positions = False
    """Whether the graph `step` reads the position of the token in each slot of the caches."""

    @property
    def source_size(self) -> int:
        """Return the number of tokens that a source may consist of."""
        return self.output_layer.weight.shape[0]

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
        """source `[B, S]`, its lengths `[B]`, target so far `[B, T]` -> next context vectors `[B, T, d]`."""
        return self.read(source, source_lengths, target)[0]

    def read(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> tuple[Tensor, Source | None]:
        """Return context vectors as calling the model does, and the source that the output layer reads."""
        memory, context = self.encode_with_source(source, source_lengths)
        hidden, _ = self.decode(target, memory, source_lengths)
        return hidden, context

    def encode_with_source(self, source: Tensor, lengths: Tensor) -> tuple[Memory, Source | None]:
        """Return `encode`, and the source as components of the output layer read it, None where none does."""
        return self.encode(source, lengths), None

    @property
    def source_tensors(self) -> Mapping[str, tuple[str, tuple[str | int, ...]]]:
        """Return type and shape of what the graph `step` reads of a source in addition to keys and values.

        These are outputs of the graph `encode` too; their third axis is that of the source tokens.
        """
        return {}

    @abc.abstractmethod
    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Return the keys and values of the source for each layer."""

    @abc.abstractmethod
    def decode(self, target: Tensor, memory: Memory, source_lengths: Tensor, past: Cache | None = None) -> Decoded:
        """Return the next context vectors `[B, T, d]` of a target `[B, T]`, and the `past` of a continuation.

        The target starts here without `past`; with it `T` is 1.
        """

    @torch.no_grad()
    def greedy(self, source: Tensor, lengths: Tensor, *, end_id: int, max_tokens: int) -> list[list[int]]:
        """Return the outputs of greedy search, without end tokens."""
        memory, context = self.encode_with_source(source, lengths)
        tokens = source.new_full((source.shape[0], 1), end_id)
        finished = torch.zeros_like(tokens[:, 0], dtype=torch.bool)
        results: list[Tensor] = []
        past: Cache | None = None
        for _ in range(max_tokens):
            hidden, past = self.decode(tokens, memory, lengths, past)
            best = self.output_layer.log_prob(hidden[:, -1:], history=context)[:, 0].argmax(-1)
            results.append(best)
            finished |= best == end_id
            if finished.all():
                break
            tokens = best[:, None]
        rows = torch.stack(results, dim=1).tolist()
        return [row[: row.index(end_id)] if end_id in row else row for row in rows]
