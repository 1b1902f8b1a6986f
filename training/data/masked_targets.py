"""Masked target prediction, the fine-tuning of UniLM (Dong et al. 2019, section 2.5).

Shapes: `B` pairs, `T` target tokens, their ends included.
"""

from dataclasses import replace

import torch
from torch import Tensor

from training.data.batching import IGNORED
from training.data.pair_batching import PairBatch

__all__ = ["masked_targets"]

_MASKED, _REPLACED = 0.8, 0.1
"""Probabilities that a chosen token becomes a mask token or a random one (Devlin et al. 2019); others stay."""


def masked_targets(batch: PairBatch, share: float, *, mask_id: int, vocab_size: int) -> PairBatch:
    """Return a batch whose inputs `[B, T + 1]` are partly masked targets, and whose targets are the tokens masked.

    `share` of each target's tokens, its end included, are chosen at random by torch's global generator, rounded to at
    least one. Position 0 of the inputs is the end token as before, position i + 1 is token i, chosen or not.
    """
    tokens, start = batch.targets, batch.inputs[:, :1]
    chosen = _chosen(tokens != IGNORED, share)
    draw = torch.rand(tokens.shape, device=tokens.device)
    shown = torch.where(tokens == IGNORED, start, tokens)
    shown = torch.where(chosen & (draw < _MASKED), mask_id, shown)
    replaced = chosen & (draw >= 1 - _REPLACED)
    shown = torch.where(replaced, torch.randint(vocab_size, tokens.shape, device=tokens.device), shown)
    targets = torch.where(chosen, tokens, IGNORED)
    return replace(
        batch,
        inputs=torch.cat([start, shown], dim=1),
        targets=torch.cat([torch.full_like(start, IGNORED), targets], dim=1),
    )


def _chosen(tokens: Tensor, share: float) -> Tensor:
    """Return which tokens of each row are chosen: `[B, T]`, True where there is one, -> `[B, T]`."""
    counts = (tokens.sum(dim=1, keepdim=True) * share).round().clamp(min=1)
    order = torch.rand(tokens.shape, device=tokens.device).masked_fill(~tokens, 2.0).argsort(dim=1)
    return order.argsort(dim=1) < counts
