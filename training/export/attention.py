"""Self-attention as it is exported."""

import torch
from torch import nn

from training.networks.transformer import Attention

__all__ = ["joined_projections"]


def joined_projections(attention: Attention) -> nn.Linear:
    """Return one linear layer that computes queries, keys and values of self-attention."""
    parts = (attention.query, attention.key_value)
    weight = torch.cat([part.weight.detach() for part in parts])
    joined = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device).requires_grad_(False)
    joined.load_state_dict({"weight": weight, "bias": torch.cat([part.bias for part in parts])})
    return joined
