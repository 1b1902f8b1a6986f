"""The graphs a text generator is exported as: an encoder, and the same layers taking one step.

Shapes: `B` texts, `K` hypotheses a text, `S` source tokens, `M` slots of a cache, `C` candidates a hypothesis,
`d` hidden size, `H` heads. See `training.tasks.translation.graphs` for the cache of a step.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.export.attention import projections
from training.export.folding import FoldedSoftmax
from training.export.graphs import ExportGraph
from training.export.operators import attend, slot_indices, write_slots
from training.export.topk import top_k
from training.networks.generation_model import GenerationModel
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
        width = memory[0].shape[2]
        source = torch.arange(width, device=tokens.device) < source_lengths[:, None]
        masks = torch.where(source, 0.0, -torch.inf)[:, None, None], torch.where(visible, 0.0, -torch.inf)[:, None]
        indices = slot_indices(slots, layers[0].attention.heads)
        places = functional.embedding(source_lengths + positions, encoder.positions)[:, None]
        hidden = encoder.norm(encoder.words(tokens) + places + self.target_segment).flatten(0, 1)
        written: list[Tensor] = []
        for index, (project, layer) in enumerate(zip(self.projections, layers, strict=True)):
            query, *update = (part.view(*tokens.shape, layer.attention.heads, -1) for part in project(hidden))
            own = slice(2 * index, 2 * index + 2)
            written += [write_slots(old, new, indices) for old, new in zip(cache[own], update, strict=True)]
            keys, values = zip(memory[own], written[own], strict=True)
            attended = _attend_parts(query.transpose(1, 2), keys, values, masks).flatten(0, 1)
            hidden = layer.after(0, hidden, layer.attention.output(attended))
            hidden = layer.after(1, hidden, layer.feed_forward(hidden))
        best, words = top_k(self.output_layer.log_prob(self.transform(hidden)), k)
        shape = (*tokens.shape, -1)
        return best.view(shape), words.view(shape), *written


def _attend_parts(
    query: Tensor, keys: tuple[Tensor, Tensor], values: tuple[Tensor, Tensor], masks: tuple[Tensor, Tensor]
) -> Tensor:
    """Return attention `[B, K, d]` of scaled queries `[B, H, K, d / H]` to source and cache at once, without copies."""
    width = keys[0].shape[2]
    scores = [query @ part.transpose(2, 3) + mask for part, mask in zip(keys, masks, strict=True)]
    weights = torch.softmax(torch.cat(scores, dim=-1), dim=-1)
    mixed = weights[..., :width] @ values[0] + weights[..., width:] @ values[1]
    return mixed.transpose(1, 2).flatten(2)


def generation_graphs(model: GenerationModel) -> Mapping[str, ExportGraph]:
    """Return the graphs `encode` and `step` of a model."""
    return sequence_graphs(model, ReadingGraph(model), GenerationStepGraph(model))
