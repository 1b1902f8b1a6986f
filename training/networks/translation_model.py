"""A translation model: word vectors, Transformer, generalized softmax.

Shapes: `B` sentences, `S` source tokens, `T` target tokens, `V` tokens of the joint vocabulary, `d` hidden size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.networks.transformer import Cache, Memory, Transformer, padding_mask
from training.softmax import GeneralizedSoftmax

__all__ = ["TranslationModel"]


class TranslationModel(nn.Module):
    """Word vectors of both languages are the rows of the output layer's projection matrix (Press and Wolf 2017)."""

    def __init__(self, network: Transformer, output_layer: GeneralizedSoftmax) -> None:
        super().__init__()
        self.network = network
        self.output_layer = output_layer

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
        """source `[B, S]`, its lengths `[B]`, target so far `[B, T]` -> next context vectors `[B, T, d]`."""
        memory, mask = self.encode(source, source_lengths)
        hidden, _ = self.network.decode(self.embed(target), memory, mask)
        return hidden

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Memory, Tensor]:
        """What the decoder needs to know of the source: keys and values, and where they are real."""
        mask = padding_mask(lengths, source.shape[1])
        return self.network.remember(self.network.encode(self.embed(source), mask)), mask

    def embed(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.output_layer.weight)

    @torch.no_grad()
    def greedy(self, source: Tensor, lengths: Tensor, *, end_id: int, max_tokens: int) -> list[list[int]]:
        """The most probable next token, again and again; end tokens are not part of the results."""
        memory, mask = self.encode(source, lengths)
        tokens = source.new_full((source.shape[0], 1), end_id)
        finished = torch.zeros_like(tokens[:, 0], dtype=torch.bool)
        results: list[Tensor] = []
        past: Cache | None = None
        for _ in range(max_tokens):
            hidden, past = self.network.decode(self.embed(tokens), memory, mask, past)
            best = self.output_layer.log_prob(hidden[:, -1]).argmax(-1)
            results.append(best)
            finished |= best == end_id
            if finished.all():
                break
            tokens = best[:, None]
        rows = torch.stack(results, dim=1).tolist()
        return [row[: row.index(end_id)] if end_id in row else row for row in rows]
