"""The graphs a translation model is exported as: an encoder, and a decoder that takes one step.

Shapes: `B` sentences, `K` hypotheses a sentence, `S` source tokens, `M` slots of a cache, `C` candidates a hypothesis,
`V` tokens, `d` hidden size, `H` heads.

A step reads one token of each hypothesis and puts its keys and values into K slots of the sentence's cache, which is
never reordered: `visible` says which slots each hypothesis descends from. All hypotheses of a sentence attend to one
cache, which is a matrix product.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.export.folding import FoldedSoftmax
from training.export.graphs import ExportGraph, contract
from training.export.topk import top_k
from training.networks.transformer import Attention, Transformer, padding_mask
from training.networks.translation_model import TranslationModel

__all__ = ["DecoderStepGraph", "EncoderGraph", "translation_graphs", "write_slots"]


def _write_slots(cache: Tensor, update: Tensor, start: Tensor) -> Tensor:
    """The cache `[B, H, M, d / H]` with `update` `[B, H, K, d / H]` in the K slots from `start` `[B]` on."""
    slots = start[:, None] + torch.arange(update.shape[2], device=start.device)
    index = slots[:, None, :, None].expand_as(update)
    return cache.scatter(2, index, update)


write_slots = torch.library.custom_op("softserve::write_slots", _write_slots, mutates_args=())
"""The same as one operator, for ONNX's TensorScatter, which can write in place."""


@write_slots.register_fake
def _write_slots_shape(cache: Tensor, update: Tensor, start: Tensor) -> Tensor:
    return torch.empty_like(cache)


class EncoderGraph(nn.Module):
    """Reads sources once: cross-attention keys and values of every decoder layer."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, source_lengths: Tensor) -> tuple[Tensor, ...]:
        """source `[B, S]`, its lengths `[B]` -> per layer keys `[B, H, d / H, S]` and values `[B, H, S, d / H]`."""
        memory, _ = self.model.encode(source, source_lengths)
        return tuple(tensor for keys, values in memory for tensor in (keys.transpose(2, 3).contiguous(), values))


class DecoderStepGraph(nn.Module):
    """Reads the last token of each hypothesis, and says what is most likely to follow it."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.network: Transformer = model.network
        self.embedding = model.output_layer.weight
        self.output_layer = FoldedSoftmax(model.output_layer)
        self.joined = nn.ModuleList(_joined(layer.self_attention) for layer in model.network.decoder_layers())

    def forward(
        self, tokens: Tensor, positions: Tensor, visible: Tensor, source_lengths: Tensor, k: Tensor, *state: Tensor
    ) -> tuple[Tensor, ...]:
        """tokens `[B, K]`, positions `[B]`, visible `[B, K, M]`, source lengths `[B]`, `C` as `k` `[]`.

        `state` holds for each layer the cache's keys and values `[B, H, M, d / H]`, then for each layer what the
        encoder said. -> log-probabilities `[B, K, C]` and tokens `[B, K, C]`, most likely first, and the new caches.
        """
        layers = self.network.decoder_layers()
        cache, memory = state[: 2 * len(layers)], state[2 * len(layers) :]
        seen = torch.where(visible, 0.0, -torch.inf)[:, None]
        readable = torch.where(padding_mask(source_lengths, memory[0].shape[3]), 0.0, -torch.inf)
        start = positions * tokens.shape[1]
        hidden = functional.embedding(tokens, self.embedding) * self.network.hidden_size**0.5
        hidden = (hidden + functional.embedding(positions, self.network.positions)[:, None]).flatten(0, 1)
        written = []
        for index, layer in enumerate(layers):
            heads = (*tokens.shape, layer.self_attention.heads)
            query, key, value = _heads(self.joined[index](layer.before(0, hidden)), 3, heads)
            keys, values = _put(cache[2 * index], key, start), _put(cache[2 * index + 1], value, start)
            written += [keys, values]
            attended = _attend(query, keys.transpose(2, 3), values, seen)
            hidden = layer.after(0, hidden, layer.self_attention.output(attended))
            (query,) = _heads(layer.cross_attention.query(layer.before(1, hidden)), 1, heads)
            attended = _attend(query, memory[2 * index], memory[2 * index + 1], readable)
            hidden = layer.after(1, hidden, layer.cross_attention.output(attended))
            hidden = layer.after(2, hidden, layer.feed_forward(layer.before(2, hidden)))
        hidden = self.network.decoder_norm(hidden)
        values, words = top_k(self.output_layer.log_prob(hidden), k)
        shape = (*tokens.shape, -1)
        return values.view(shape), words.view(shape), *written


def _joined(attention: Attention) -> nn.Linear:
    """Queries, keys and values of self-attention from one matrix product."""
    parts = (attention.query, attention.key_value)
    weight = torch.cat([part.weight.detach() for part in parts])
    joined = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device)
    joined.weight = nn.Parameter(weight, requires_grad=False)
    joined.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]), requires_grad=False)
    return joined


def _heads(vectors: Tensor, count: int, sizes: tuple[int, int, int]) -> tuple[Tensor, ...]:
    """`[B K, count d]`, `(B, K, H)` -> count of `[B, H, K, d / H]`."""
    batch_size, beam, heads = sizes
    if count == 1:
        return (vectors.view(batch_size, beam, heads, -1).transpose(1, 2),)
    return vectors.view(batch_size, beam, count, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


def _put(cache: Tensor, update: Tensor, start: Tensor) -> Tensor:
    if torch.compiler.is_exporting():
        written: Tensor = write_slots(cache, update, start)
        return written
    return _write_slots(cache, update, start)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """query `[B, H, K, d / H]`, keys `[B, H, d / H, M]`, values `[B, H, M, d / H]`, mask to add -> `[B K, d]`."""
    scores = (query @ keys) * query.shape[-1] ** -0.5 + mask
    return (torch.softmax(scores, dim=-1) @ values).transpose(1, 2).flatten(2).flatten(0, 1)


def translation_graphs(model: TranslationModel) -> Mapping[str, ExportGraph]:
    """`encode` and `step` of a model, as the manifest names them."""
    layers = len(model.network.decoder_layers())
    heads = model.network.decoder_layers()[0].self_attention.heads
    size = model.network.hidden_size // heads
    memory: dict[str, tuple[str, tuple[str | int, ...]]] = {}
    caches: dict[str, tuple[str, tuple[str | int, ...]]] = {}
    lengths = ("int64", ("batch",))
    for index in range(layers):
        memory[f"memory_keys_{index}"] = ("float32", ("batch", heads, size, "source"))
        memory[f"memory_values_{index}"] = ("float32", ("batch", heads, "source", size))
        caches[f"keys_{index}"] = caches[f"values_{index}"] = ("float32", ("batch", heads, "slots", size))
    encode = contract({"source": ("int64", ("batch", "source")), "source_lengths": lengths}, memory)
    step = contract(
        {
            "tokens": ("int64", ("batch", "beam")),
            "positions": lengths,
            "visible": ("bool", ("batch", "beam", "slots")),
            "source_lengths": lengths,
            "k": ("int64", ()),
            **caches,
            **memory,
        },
        {
            "log_probabilities": ("float32", ("batch", "beam", "k")),
            "candidates": ("int64", ("batch", "beam", "k")),
            **{f"new_{name}": tensor for name, tensor in caches.items()},
        },
    )
    encoder = EncoderGraph(model)
    return {
        "encode": ExportGraph(encoder, encode, example_source(model, batch_size=3, length=7, seed=0)),
        "step": ExportGraph(
            DecoderStepGraph(model), step, example_step(model, encoder, batch_size=3, beam=2, length=7, seed=1), True
        ),
    }


def example_source(model: TranslationModel, *, batch_size: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random sources `[B, S]` and lengths `[B]`, of which the first is S."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(model.output_layer.weight.shape[0], (batch_size, length), generator=generator)
    lengths = torch.randint(1, length + 1, (batch_size,), generator=generator)
    lengths[0] = length
    return source, lengths


@torch.no_grad()
def example_step(
    model: TranslationModel, encoder: EncoderGraph, *, batch_size: int, beam: int, length: int, seed: int
) -> tuple[Tensor, ...]:
    """Inputs of a step in the middle of a translation, caches filled with random numbers."""
    generator = torch.Generator().manual_seed(seed)
    source, lengths = example_source(model, batch_size=batch_size, length=length, seed=seed)
    memory = encoder(source, lengths)
    steps = 4
    positions = torch.randint(steps, (batch_size,), generator=generator)
    slots = torch.arange(steps * beam) // beam
    own = (slots == positions[:, None])[:, None] & (torch.arange(steps * beam) % beam == torch.arange(beam)[:, None])
    past = (slots < positions[:, None])[:, None] & (torch.rand(own.shape, generator=generator) < 0.5)
    _, heads, size, _ = memory[0].shape
    caches = torch.rand(len(memory), batch_size, heads, steps * beam, size, generator=generator) * 2 - 1
    tokens = torch.randint(model.output_layer.weight.shape[0], (batch_size, beam), generator=generator)
    return tokens, positions, own | past, lengths, torch.tensor(2 * beam), *caches, *memory
