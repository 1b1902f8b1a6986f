"""The graphs a text generator is exported as: an encoder, and the same layers taking one step.

Shapes: `B` texts, `K` hypotheses a text, `S` source tokens, `M` slots of a cache, `C` candidates a hypothesis,
`d` hidden size, `H` heads, `Q` vectors of a step: the `K` tokens, and behind them `K` mask tokens if the model appends
these. See `training.tasks.translation.graphs` for the cache of a step.
"""

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.bundling.attention import projections
from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph
from training.bundling.topk import top_k
from training.networks.generation_model import GenerationModel
from training.networks.operators import attend, slot_indices, write_slots
from training.tasks.sequence_graphs import sequence_graphs

__all__ = ["GenerationStepGraph", "ReadingGraph", "generation_graphs"]


class _Layers(nn.Module):
    """The common part of both graphs: the layers, with projections to export."""

    def __init__(self, model: GenerationModel) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.projections = projections(layer.attention for layer in model.encoder.encoder_layers())


class ReadingGraph(_Layers):
    """Reads sources once: keys and values of every layer."""

    def forward(self, source: Tensor, source_lengths: Tensor) -> tuple[Tensor, ...]:
        """source `[B, S]`, its lengths `[B]` -> for each layer keys and values `[B, H, S, d / H]`."""
        encoder, memory = self.encoder, list[Tensor]()
        hidden = encoder.norm(encoder.words(source) + encoder.positions[: source.shape[1]]).flatten(0, 1)
        for project, layer in zip(self.projections, self.encoder.encoder_layers(), strict=True):
            heads = layer.attention.heads
            query, keys, values = (part.view(*source.shape, -1) for part in project(hidden))
            memory += [each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (keys, values)]
            if len(memory) < 2 * len(self.projections):
                attended = attend(query, keys, values, source_lengths, heads).flatten(0, 1)
                hidden = layer.after(0, hidden, layer.attention.output(attended))
                hidden = layer.after(1, hidden, layer.feed_forward(hidden))
        return tuple(memory)


class GenerationStepGraph(_Layers):
    """Reads the last token of each hypothesis, and computes the most likely next tokens."""

    def __init__(self, model: GenerationModel) -> None:
        super().__init__(model)
        self.mask_id = model.mask_id
        self.target_segment = model.target_segment
        self.transform = model.transform
        self.output_layer = FoldedSoftmax(model.output_layer)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        visible: Tensor,
        source_lengths: Tensor,
        k: Tensor,
        *state: Tensor,
    ) -> tuple[Tensor, ...]:
        """See `training.tasks.sequence_graphs`."""
        encoder, layers = self.encoder, self.encoder.encoder_layers()
        cache, memory = state[: 2 * len(layers)], state[2 * len(layers) :]
        width, beam = memory[0].shape[2], tokens.shape[1]
        source = torch.arange(width, device=tokens.device) < source_lengths[:, None]
        masks = [torch.where(source, 0.0, -torch.inf)[:, None, None], torch.where(visible, 0.0, -torch.inf)[:, None]]
        indices = slot_indices(slots, layers[0].attention.heads)
        places = (source_lengths + positions)[:, None]
        if self.mask_id is not None:
            masks = [masks[0], masks[1].repeat(1, 1, 2, 1), _own_mask(tokens)]
            places = torch.cat([places.expand_as(tokens), (places + 1).expand_as(tokens)], dim=1)
            tokens = torch.cat([tokens, torch.full_like(tokens, self.mask_id)], dim=1)
        vectors = encoder.words(tokens) + functional.embedding(places, encoder.positions) + self.target_segment
        hidden = encoder.norm(vectors).flatten(0, 1)
        written: list[Tensor] = []
        for index, (project, layer) in enumerate(zip(self.projections, layers, strict=True)):
            query, *new = (part.view(*tokens.shape, layer.attention.heads, -1) for part in project(hidden))
            own = slice(2 * index, 2 * index + 2)
            written += [write_slots(old, part[:, :beam], indices) for old, part in zip(cache[own], new, strict=True)]
            seen = [memory[own], written[own]]
            if self.mask_id is not None:
                seen.append([part[:, beam:].transpose(1, 2) for part in new])
            attended = _attend_parts(query.transpose(1, 2), seen, masks).flatten(0, 1)
            hidden = layer.after(0, hidden, layer.attention.output(attended))
            hidden = layer.after(1, hidden, layer.feed_forward(hidden))
        if self.mask_id is not None:
            hidden = hidden.view(*tokens.shape, -1)[:, beam:].flatten(0, 1)
        best, words = top_k(self.output_layer.log_prob(self.transform(hidden)), k)
        shape = (*slots.shape, -1)
        return best.view(shape), words.view(shape), *written


def _own_mask(tokens: Tensor) -> Tensor:
    """Return the mask by which only mask tokens attend to mask tokens, each to itself: tokens `[B, K]` -> `[Q, K]`."""
    index = torch.arange(tokens.shape[1], device=tokens.device)
    own = torch.where(index[:, None] == index, 0.0, -torch.inf)
    return torch.cat([torch.full_like(own, -torch.inf), own])


def _attend_parts(query: Tensor, parts: Sequence[Sequence[Tensor]], masks: Sequence[Tensor]) -> Tensor:
    """Return attention `[B, Q, d]` of scaled queries `[B, H, Q, d / H]` to source, cache and mask tokens at once.

    `parts` are the keys and values `[B, H, tokens, d / H]` of each, which are not copied.
    """
    scores = [query @ keys.transpose(2, 3) + mask for (keys, _), mask in zip(parts, masks, strict=True)]
    weights = torch.softmax(torch.cat(scores, dim=-1), dim=-1).split([keys.shape[2] for keys, _ in parts], dim=-1)
    mixed = (weight @ values for weight, (_, values) in zip(weights, parts, strict=True))
    total: Tensor = functools.reduce(torch.add, mixed)
    return total.transpose(1, 2).flatten(2)


def generation_graphs(model: GenerationModel) -> Mapping[str, ExportGraph]:
    """Return the graphs `encode` and `step` of a model."""
    return sequence_graphs(model, ReadingGraph(model), GenerationStepGraph(model))
