"""Disentangled attention as it is exported: all that does not depend on the text is computed once.

Shapes: `B` texts, `T` tokens, `S` buckets of distances to one side, `P` positions, `d` hidden size, `H` heads.
"""

import torch
from torch import Tensor, nn

from training.networks.disentangled import pairwise, relative_scores
from training.networks.text_encoder import TextEncoder

__all__ = ["RelativeScores", "relative_layers"]


class RelativeScores(nn.Module):
    """What distances add to the scores of one layer."""

    buckets: Tensor

    def __init__(
        self, position_keys: Tensor | None, position_queries: Tensor | None, buckets: Tensor, heads: int
    ) -> None:
        """`position_keys` and scaled `position_queries`, `[1, H, d / H, 2 S]`; buckets `[2 P - 1]`."""
        super().__init__()
        self.heads = heads
        self.keys, self.queries = _constant(position_keys), _constant(position_queries)
        self.register_buffer("buckets", buckets, persistent=False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the addition to the scores of scaled queries and keys, both `[B, T, d]`: `[B, H, T, T]`."""
        buckets = pairwise(self.buckets, query.shape[1])
        query, key = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key))
        return relative_scores(query, key, self.keys, self.queries, buckets)


@torch.no_grad()
def relative_layers(encoder: TextEncoder) -> nn.ModuleList:
    """Return the `RelativeScores` of each layer; none for an encoder with vectors of positions."""
    if not encoder.relative:
        return nn.ModuleList()
    distances = encoder.distances
    vectors = distances.norm(distances.vectors)[None]
    return nn.ModuleList(
        RelativeScores(*layer.attention.position_tables(vectors), distances.buckets, layer.attention.heads)
        for layer in encoder.encoder_layers()
    )


def _constant(table: Tensor | None) -> nn.Parameter | None:
    return None if table is None else nn.Parameter(table.detach().contiguous(), requires_grad=False)
