"""Disentangled attention of transformers with the scores of exported graphs.

Shapes: `B` texts, `T` tokens, `S` buckets of distances to one side, `P` positions, `d` hidden size, `H` heads.
"""

from typing import Any

import torch
from torch import Tensor, nn

from training.bundling.disentangled import RelativeScores
from training.networks.disentangled import distance_buckets
from training.networks.operators import attend_some

__all__ = ["DisentangledAttention"]


class DisentangledAttention(nn.Module):
    """Stands for `DisentangledSelfAttention` of transformers in an exported graph."""

    def __init__(self, attention: Any, relative: Tensor | None, positions: int) -> None:
        """`relative` are the vectors of distances, `[2 S, d]`, None without relative attention."""
        super().__init__()
        self.heads: int = attention.num_attention_heads
        kinds = [kind for kind in ("c2p", "p2c") if kind in attention.pos_att_type]
        scale = (attention.attention_head_size * (1 + len(kinds))) ** -0.5
        self.query = _scaled(attention.query_proj, scale)
        self.key, self.value = attention.key_proj, attention.value_proj
        self.relative: RelativeScores | None = None
        if relative is None or not kinds:
            return
        span: int = attention.pos_ebd_size
        shared = attention.share_att_key
        keys = queries = None
        if "c2p" in kinds:
            project = attention.key_proj if shared else attention.pos_key_proj
            keys = self._split(project(relative[: 2 * span]))
        if "p2c" in kinds:
            project = attention.query_proj if shared else attention.pos_query_proj
            queries = self._split(project(relative[: 2 * span]) * scale)
        furthest = attention.max_relative_positions if attention.position_buckets > 0 else None
        self.relative = RelativeScores(keys, queries, distance_buckets(positions, span, furthest), self.heads)

    def _split(self, vectors: Tensor) -> Tensor:
        """Split the heads of vectors and transpose: `[2 S, d]` -> `[1, H, d / H, 2 S]`."""
        split: Tensor = vectors.unflatten(-1, (self.heads, -1))
        return split.permute(1, 2, 0)[None]

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, output_attentions: bool = False, **options: object
    ) -> tuple[Tensor, None]:
        """Attend: `[B, T, d]`, a mask `[B, 1, T, T]` -> `[B, T, d]`."""
        del output_attentions, options
        query, key, value = self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)
        # A padding token sees what the others see: no row is without a key, and its result is not used.
        seen = attention_mask.bool().any(-2, keepdim=True)
        bias = torch.where(seen, 0.0, -torch.inf)
        if self.relative is not None:
            bias = bias + self.relative(query, key)
        return attend_some(query, key, value, bias, self.heads), None


def _scaled(linear: nn.Linear, scale: float) -> nn.Linear:
    scaled = nn.Linear(linear.in_features, linear.out_features).requires_grad_(False)
    scaled.load_state_dict({"weight": linear.weight.detach() * scale, "bias": linear.bias.detach() * scale})
    return scaled
