"""Self-attention as it is exported."""

import torch
from torch import nn

from training.networks.transformer import Attention

__all__ = ["joined_projections"]


def joined_projections(attention: Attention) -> nn.Linear:
    """Queries, keys and values of self-attention from one matrix product."""
    parts = (attention.query, attention.key_value)
    weight = torch.cat([part.weight.detach() for part in parts])
    joined = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device)
    joined.weight = nn.Parameter(weight, requires_grad=False)
    joined.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]), requires_grad=False)
    return joined
