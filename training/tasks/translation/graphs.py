"""The graphs a translation model is exported as: an encoder, and a decoder that takes one step.

Shapes: `B` sentences, `K` hypotheses a sentence, `S` source tokens, `M` slots of a cache, `C` candidates a hypothesis,
`V` tokens, `d` hidden size, `H` heads.

A step reads one token of each hypothesis and puts its keys and values into `slots` of the sentence's cache, which is
never reordered: `visible` says which slots each hypothesis descends from. All hypotheses of a sentence attend to one
cache, which is a matrix product.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.bundling.attention import KeyValue, projections, scaled_query
from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph
from training.bundling.topk import top_k
from training.networks.operators import attend, attend_some, slot_indices, write_slots
from training.networks.transformer import Transformer
from training.networks.translation_model import TranslationModel
from training.softmax import Source
from training.tasks.sequence_graphs import sequence_graphs

__all__ = ["DecoderStepGraph", "EncoderGraph", "translation_graphs"]


class EncoderGraph(nn.Module):
    """Reads sources once: keys and values of cross-attention in every layer, and the tokens and states to copy from."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.network: Transformer = model.network
        self.reads_source = model.output_layer.reads_source
        self.embedding = model.source_vectors
        self.projections = projections(layer.attention for layer in model.network.encoder_layers())
        self.memory = nn.ModuleList(KeyValue(layer.cross_attention) for layer in model.network.decoder_layers())

    def forward(self, source: Tensor, source_lengths: Tensor) -> tuple[Tensor, ...]:
        """source `[B, S]`, its lengths `[B]` -> for each layer keys and values `[B, H, S, d / H]`.

        Where the output layer copies, the encoder's outputs `[B, 1, S, d]`, the tokens of the source and their
        `first_places` `[B, 1, S]` follow.
        """
        hidden = self.network.embed_source(functional.embedding(source, self.embedding)).flatten(0, 1)
        bias = None if self.network.biases is None else self._score_bias(source.shape[1], source_lengths)
        for index, layer in enumerate(self.network.encoder_layers()):
            projected = self.projections[index](layer.before(0, hidden))
            query, keys, values = (part.view(*source.shape, -1) for part in projected)
            heads = layer.attention.heads
            if bias is None:
                attended = attend(query, keys, values, source_lengths, heads)
            else:
                attended = attend_some(query, keys, values, bias, heads)
            hidden = layer.after(0, hidden, layer.attention.output(attended.flatten(0, 1)))
            hidden = layer.after(1, hidden, layer.feed_forward(layer.before(1, hidden)))
        hidden = self.network.encoder_norm(hidden)
        memory: list[Tensor] = []
        for project, decoder_layer in zip(self.memory, self.network.decoder_layers(), strict=True):
            shape = (*source.shape, decoder_layer.cross_attention.heads, -1)
            memory += [part.view(shape).transpose(1, 2) for part in project(hidden)]
        if self.reads_source:
            states = hidden.view(*source.shape, -1)
            places = Source(source, states, source >= 0).first_places()
            memory += [states[:, None], source[:, None], places[:, None]]
        return tuple(memory)

    def _score_bias(self, width: int, lengths: Tensor) -> Tensor:
        """Return the summands of scores, minus infinity on padding: `[B, H, S, S]`."""
        assert self.network.biases is not None
        seen = torch.arange(width, device=lengths.device) < lengths[:, None]
        return self.network.biases.of_source(width) + torch.where(seen, 0.0, -torch.inf)[:, None, None]


class DecoderStepGraph(nn.Module):
    """Reads the last token of each hypothesis, and computes the most likely next tokens."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.network: Transformer = model.network
        self.reads_source = model.output_layer.reads_source
        self.embedding = model.target_vectors
        self.output_layer = FoldedSoftmax(model.output_layer)
        self.projections = projections(layer.self_attention for layer in model.network.decoder_layers())
        self.queries = nn.ModuleList(scaled_query(layer.cross_attention) for layer in model.network.decoder_layers())

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
        """tokens and slots `[B, K]`, positions `[B]`, visible `[B, K, M]`, source lengths `[B]`, `C` as `k` `[]`.

        `state` holds for each layer the cache's keys and values `[B, H, M, d / H]`, then the outputs of the
        encoder; of a network with relative biases, the positions of the slots `[B, M]` go before.
        -> log-probabilities `[B, K, C]` and tokens `[B, K, C]`, most likely first, and the new caches.
        """
        layers = self.network.decoder_layers()
        seen = torch.where(visible, 0.0, -torch.inf)[:, None]
        if self.network.biases is not None:
            slot_positions, state = state[0], state[1:]
            seen = seen + self.network.biases.of_target(positions[:, None], slot_positions)
        cache, memory = state[: 2 * len(layers)], state[2 * len(layers) :]
        indices = slot_indices(slots, layers[0].self_attention.heads)
        hidden = self.network.embed_target(functional.embedding(tokens, self.embedding), positions[:, None])
        hidden = hidden.flatten(0, 1)
        written: list[Tensor] = []
        for index, layer in enumerate(layers):
            heads = layer.self_attention.heads
            query, *update = self.projections[index](layer.before(0, hidden))
            query = query.view(*tokens.shape, -1)
            written += [
                write_slots(old, new.view(*tokens.shape, heads, -1), indices)
                for old, new in zip(cache[2 * index : 2 * index + 2], update, strict=True)
            ]
            attended = attend_some(query, written[-2], written[-1], seen, heads).flatten(0, 1)
            hidden = layer.after(0, hidden, layer.self_attention.output(attended))
            query = self.queries[index](layer.before(1, hidden)).view(*tokens.shape, -1)
            attended = attend(query, memory[2 * index], memory[2 * index + 1], source_lengths, heads).flatten(0, 1)
            hidden = layer.after(1, hidden, layer.cross_attention.output(attended))
            hidden = layer.after(2, hidden, layer.feed_forward(layer.before(2, hidden)))
        hidden = self.network.decoder_norm(hidden)
        if self.reads_source:
            states, words, places = (each[:, 0] for each in memory[2 * len(layers) :])
            read = torch.arange(words.shape[1], device=words.device) < source_lengths[:, None]
            source, hidden = Source(words, states, read), hidden.view(*tokens.shape, -1)
            values, candidates = self.output_layer.top_k_with_source(hidden, k, source, places)
        else:
            values, candidates = top_k(self.output_layer.log_prob(hidden), k)
        shape = (*tokens.shape, -1)
        return values.view(shape), candidates.view(shape), *written


def translation_graphs(model: TranslationModel) -> Mapping[str, ExportGraph]:
    """Return the graphs `encode` and `step` of a model."""
    return sequence_graphs(model, EncoderGraph(model), DecoderStepGraph(model))
