"""Disentangled attention (He et al. 2021, section 3.1) with all that does not depend on the text computed once.

Shapes: `B` texts, `T` tokens, `S` buckets of distances to one side, `P` positions, `d` hidden size, `H` heads.
"""

from typing import Any

import torch
from torch import Tensor, nn

from training.export.operators import attend_some
from training.importing.importer import need

__all__ = ["DisentangledAttention"]


class DisentangledAttention(nn.Module):
    """Stands for `DisentangledSelfAttention` of transformers in an exported graph."""

    position_keys: Tensor
    position_queries: Tensor
    buckets: Tensor

    def __init__(self, attention: Any, relative: Tensor | None, positions: int) -> None:
        """`relative` are the vectors of distances, `[2 S, d]`, None without relative attention."""
        super().__init__()
        self.heads: int = attention.num_attention_heads
        self.kinds = kinds = [kind for kind in ("c2p", "p2c") if kind in attention.pos_att_type]
        scale = (attention.attention_head_size * (1 + len(kinds))) ** -0.5
        self.query = _scaled(attention.query_proj, scale)
        self.key, self.value = attention.key_proj, attention.value_proj
        self.relative = relative is not None and bool(kinds)
        if relative is None:
            return
        span: int = attention.pos_ebd_size
        vectors = relative[: 2 * span]
        shared = attention.share_att_key
        if "c2p" in kinds:
            project = attention.key_proj if shared else attention.pos_key_proj
            self.position_keys = nn.Parameter(self._split(project(vectors)), requires_grad=False)
        if "p2c" in kinds:
            project = attention.query_proj if shared else attention.pos_query_proj
            self.position_queries = nn.Parameter(self._split(project(vectors) * scale), requires_grad=False)
        self.register_buffer("buckets", _buckets(attention, span, positions), persistent=False)

    def _split(self, vectors: Tensor) -> Tensor:
        """Split the heads of vectors and transpose: `[2 S, d]` -> `[1, H, d / H, 2 S]`."""
        split: Tensor = vectors.detach().unflatten(-1, (self.heads, -1))
        return split.permute(1, 2, 0)[None].contiguous()

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, output_attentions: bool = False, **options: object
    ) -> tuple[Tensor, None]:
        """Attend: `[B, T, d]`, a mask `[B, 1, T, T]` -> `[B, T, d]`."""
        del output_attentions, options
        query, key, value = self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)
        # A padding token sees what the others see: no row is without a key, and its result is not used.
        seen = attention_mask.bool().any(-2, keepdim=True)
        bias = torch.where(seen, 0.0, -torch.inf)
        if self.relative:
            bias = bias + self._relative_scores(query, key)
        return attend_some(query, key, value, bias, self.heads), None

    def _relative_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return what distances add to the scores of scaled queries and keys, both `[B, T, d]`: `[B, H, T, T]`."""
        places = torch.arange(query.shape[1], device=query.device)
        buckets = self.buckets[places[:, None] - places + self.buckets.shape[0] // 2]
        shape = (query.shape[0], self.heads, -1, -1)
        scores: Tensor | float = 0.0
        if "c2p" in self.kinds:
            found = _heads(query, self.heads) @ self.position_keys
            scores = scores + found.gather(-1, buckets.expand(shape))
        if "p2c" in self.kinds:
            found = _heads(key, self.heads) @ self.position_queries
            scores = scores + found.gather(-1, buckets.T.expand(shape)).transpose(-1, -2)
        assert isinstance(scores, Tensor)
        return scores


def _heads(vectors: Tensor, heads: int) -> Tensor:
    """Split vectors into heads: `[B, T, d]` -> `[B, H, T, d / H]`."""
    split: Tensor = vectors.unflatten(-1, (heads, -1))
    return split.transpose(1, 2)


def _scaled(linear: nn.Linear, scale: float) -> nn.Linear:
    scaled = nn.Linear(linear.in_features, linear.out_features).requires_grad_(False)
    scaled.load_state_dict({"weight": linear.weight.detach() * scale, "bias": linear.bias.detach() * scale})
    return scaled


def _buckets(attention: Any, span: int, positions: int) -> Tensor:
    """Return the bucket of each distance from `1 - P` to `P - 1`, from 0 to `2 S - 1`: `[2 P - 1]`."""
    module = need("transformers.models.deberta_v2.modeling_deberta_v2")
    distances = torch.arange(1 - positions, positions)
    if attention.position_buckets > 0 and attention.max_relative_positions > 0:
        distances = module.make_log_bucket_position(
            distances, attention.position_buckets, attention.max_relative_positions
        )
    return torch.clamp(distances.long() + span, 0, 2 * span - 1)
