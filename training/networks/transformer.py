"""The Transformer (Vaswani et al. 2017) with a decoder that reads whole sentences or continues from a cache.

Shapes: `B` sentences, `S` source tokens, `T` target tokens, `P` target tokens read before, `d` hidden size,
`H` heads, `L` decoder layers.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.networks.disentangled import SCORE_TERMS, relative_scores
from training.networks.dropout import Dropout

__all__ = [
    "Activation",
    "Attention",
    "Cache",
    "Decoded",
    "DecoderLayer",
    "EncoderLayer",
    "Linear",
    "Memory",
    "Norm",
    "Relative",
    "RelativeBiases",
    "RmsNorm",
    "Sizes",
    "Transformer",
    "Variation",
    "padding_mask",
    "sinusoidal_positions",
]

Norm = Literal["pre", "post"]
"""Whether a sublayer's input or its sum with the residual is normalized (Xiong et al. 2020)."""

Activation = Callable[[Tensor], Tensor]

KeyValue = tuple[Tensor, Tensor]
"""Keys and values `[B, H, tokens, d / H]`."""

Relative = tuple[Tensor, Tensor]
"""Vectors of distances `[1, R, d]`, and which of them is that of each query and key, `[T, T]`."""

Memory = list[KeyValue]
"""Per decoder layer, keys and values of the source."""

Cache = list[KeyValue]
"""Per decoder layer, keys and values of the target tokens read so far."""

Decoded = tuple[Tensor, Cache]
"""Context vectors `[B, T, d]`, and the cache from which decoding continues."""


def sinusoidal_positions(count: int, hidden_size: int) -> Tensor:
    """Return position vectors `[count, d]`: sines in the first half, cosines in the second (section 3.5).

    The halves are not interleaved, as in tensor2tensor; the rows are the same up to the order of their entries.
    """
    half = hidden_size // 2
    rates = torch.exp(torch.arange(half) * (-math.log(10_000) / max(1, half - 1)))
    angles = torch.arange(count)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variation:
    """How the layers of a Transformer differ from those of Vaswani et al. (2017); the defaults are theirs."""

    rms_norm: bool = False
    """Whether norms divide by the root mean square (Zhang and Sennrich 2019), without a mean and a bias."""
    norm_epsilon: float = 1e-5
    """What norms add to the variance, or to the mean square."""
    bias: bool = True
    """Whether the projections of attention and of feed-forward networks have biases."""
    gated: bool = False
    """Whether feed-forward networks multiply the activation with a second projection (Shazeer 2020)."""
    head_size: int | None = None
    """Coordinates of a head, by default the hidden size divided by the heads."""
    attention_scale: float | None = None
    """Factor of the scores of attention, by default 1 / root of the coordinates of a head."""

    def norm(self, size: int) -> nn.Module:
        """Return a norm of vectors of this size."""
        return (RmsNorm if self.rms_norm else nn.LayerNorm)(size, self.norm_epsilon)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the layers of an encoder or a decoder."""

    inner_size: int
    """Width of the feed-forward networks."""
    heads: int


class RmsNorm(nn.Module):
    """Vectors divided by the root of their mean square, times a weight for each coordinate."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._epsilon = epsilon

    def forward(self, vectors: Tensor) -> Tensor:
        squares = vectors.square().mean(-1, keepdim=True)
        return vectors * torch.rsqrt(squares + self._epsilon) * self.weight


class RelativeBiases(nn.Module):
    """What is added to the scores of self-attention by the distance of key and query (Raffel et al. 2020, 2.1).

    All layers have the same biases. Distances beyond the tables count as the largest ones in them.
    """

    encoder: Tensor
    """Biases of the distances -D to D, key minus query: `[2 D + 1, H]`."""
    decoder: Tensor
    """Biases of the distances 0 to D, query minus key: `[D + 1, H]`."""

    def __init__(self, encoder: Tensor, decoder: Tensor) -> None:
        super().__init__()
        self.register_buffer("encoder", encoder, persistent=False)
        self.register_buffer("decoder", decoder, persistent=False)

    def of_source(self, width: int) -> Tensor:
        """Return the biases of all pairs of source tokens: `[1, H, width, width]`."""
        places, most = torch.arange(width, device=self.encoder.device), self.encoder.shape[0] // 2
        distances = (places[None] - places[:, None]).clamp(-most, most) + most
        return functional.embedding(distances, self.encoder).permute(2, 0, 1)[None]

    def of_target(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return biases by the positions of queries `[B, T]` and keys `[B, M]`: `[B, H, T, M]`."""
        distances = (queries[:, :, None] - keys[:, None]).clamp(0, self.decoder.shape[0] - 1)
        return functional.embedding(distances, self.decoder).permute(0, 3, 1, 2)


def padding_mask(lengths: Tensor, width: int) -> Tensor:
    """Return a mask that is True where attention may look: lengths `[B]` -> `[B, 1, 1, width]`."""
    return (torch.arange(width, device=lengths.device) < lengths[:, None])[:, None, None]


class Linear(nn.Linear):
    """`nn.Linear` as a product of two matrices whatever the input's shape, which is exported as one operator."""

    __call__: Callable[..., Tensor]

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dim() == 2:
            return functional.linear(inputs, self.weight, self.bias)
        flat = functional.linear(inputs.flatten(0, -2), self.weight, self.bias)
        outputs: Tensor = flat.unflatten(0, inputs.shape[:-1])
        return outputs


class Attention(nn.Module):
    """Multi-head attention (section 3.2.2); keys and values come from elsewhere, so that they can be kept."""

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        dropout: float = 0.0,
        *,
        disentangled: bool = False,
        variation: Variation | None = None,
    ) -> None:
        """`dropout` is that of the attention weights, which BERT and tensor2tensor have.

        `disentangled` attention is always called with `relative`; see `training.networks.disentangled`.
        """
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        variation = Variation() if variation is None else variation
        head_size = hidden_size // heads if variation.head_size is None else variation.head_size
        scale = (head_size * (SCORE_TERMS if disentangled else 1)) ** -0.5
        self.scale: float = scale if variation.attention_scale is None else variation.attention_scale
        self.query = Linear(hidden_size, heads * head_size, variation.bias)
        self.key_value = Linear(hidden_size, 2 * heads * head_size, variation.bias)
        self.output = Linear(heads * head_size, hidden_size, variation.bias)

    def keys_values(self, inputs: Tensor) -> KeyValue:
        """Return keys and values: `[B, tokens, d]` -> two of `[B, H, tokens, d / H]`."""
        keys, values = self.key_value(inputs).chunk(2, dim=-1)
        return self._split(keys), self._split(values)

    def position_tables(self, distances: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and scaled queries of distances, by the projections of tokens (`share_att_key`).

        `[1, R, d]` -> two of `[1, H, d / H, R]`.
        """
        keys, queries = self.keys_values(distances)[0], self._split(self.query(distances) * self.scale)
        return keys.transpose(2, 3), queries.transpose(2, 3)

    def forward(
        self,
        inputs: Tensor,
        keys_values: KeyValue,
        mask: Tensor | None,
        causal: bool = False,
        relative: Relative | None = None,
    ) -> Tensor:
        """`[B, T, d]` -> `[B, T, d]`; `mask` is True where a query may look, broadcast to `[B, H, T, tokens]`.

        A mask of numbers is added to the scores.
        """
        query = self._split(self.query(inputs))
        keys, values = keys_values
        if relative is not None:
            distances, buckets = relative
            scores = relative_scores(query * self.scale, keys, *self.position_tables(distances), buckets)
            mask = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        dropout = self.dropout if self.training else 0.0
        attend = functools.partial(
            functional.scaled_dot_product_attention, dropout_p=dropout, is_causal=causal, scale=self.scale
        )
        if torch.is_autocast_enabled("cpu"):
            # The backward pass with bfloat16 takes several times as long as with float32, also where it is native.
            mask = mask.float() if mask is not None and mask.is_floating_point() else mask
            with torch.autocast("cpu", enabled=False):
                mixed = attend(query.float(), keys.float(), values.float(), attn_mask=mask)
        else:
            mixed = attend(query, keys, values, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def head_log_weights(self, inputs: Tensor, keys: Tensor, mask: Tensor | None, head: int) -> Tensor:
        """Return the logarithms of the attention weights of one head, in float32: `[B, T, d]` -> `[B, T, tokens]`.

        `keys` are `[B, H, tokens, d / H]`, `mask` is `[B, 1, 1, tokens]`. Other heads are not computed.
        """
        size = keys.shape[3]
        rows = slice(head * size, (head + 1) * size)
        bias = None if self.query.bias is None else self.query.bias[rows]
        query = functional.linear(inputs, self.query.weight[rows], bias)
        with torch.autocast(inputs.device.type, enabled=False):
            scores = query.float() @ keys[:, head].float().transpose(1, 2) * self.scale
            return functional.log_softmax(scores if mask is None else scores.masked_fill(~mask[:, 0], -1e9), dim=-1)

    def _split(self, vectors: Tensor) -> Tensor:
        heads: Tensor = vectors.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return heads


class _FeedForward(nn.Module):
    """Position-wise feed-forward network (section 3.3), which may have a gate."""

    def __init__(self, hidden_size: int, inner_size: int, activation: Activation, variation: Variation) -> None:
        super().__init__()
        self.inner = Linear(hidden_size, inner_size, variation.bias)
        self.gated = Linear(hidden_size, inner_size, variation.bias) if variation.gated else None
        self.outer = Linear(inner_size, hidden_size, variation.bias)
        self.activation = activation

    def forward(self, inputs: Tensor) -> Tensor:
        inner = self.activation(self.inner(inputs))
        return self.outer(inner if self.gated is None else inner * self.gated(inputs))


class _Layer(nn.Module):
    """What encoder and decoder layers share: each sublayer with its residual, norm and dropout (section 5.4)."""

    def __init__(self, sublayers: int, hidden_size: int, dropout: float, norm: Norm, variation: Variation) -> None:
        super().__init__()
        self.norms = nn.ModuleList(variation.norm(hidden_size) for _ in range(sublayers))
        self.dropout = Dropout(dropout)
        self.pre = norm == "pre"

    def before(self, index: int, inputs: Tensor) -> Tensor:
        """Return the inputs of sublayer `index`."""
        normalized: Tensor = self.norms[index](inputs) if self.pre else inputs
        return normalized

    def after(self, index: int, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return the sum of the residual and the sublayer's outputs."""
        joined: Tensor = inputs + self.dropout(outputs)
        return joined if self.pre else self.norms[index](joined)


class EncoderLayer(_Layer):
    def __init__(
        self,
        hidden_size: int,
        inner_size: int,
        heads: int,
        dropout: float,
        norm: Norm,
        *,
        activation: Activation = functional.relu,
        norm_epsilon: float | None = None,
        attention_dropout: float = 0.0,
        disentangled: bool = False,
        variation: Variation | None = None,
    ) -> None:
        """`norm_epsilon` is that of a plain layer; otherwise `variation` says it."""
        variation = Variation(norm_epsilon=norm_epsilon or 1e-5) if variation is None else variation
        super().__init__(2, hidden_size, dropout, norm, variation)
        self.attention = Attention(
            hidden_size, heads, attention_dropout, disentangled=disentangled, variation=variation
        )
        self.feed_forward = _FeedForward(hidden_size, inner_size, activation, variation)

    def forward(self, inputs: Tensor, mask: Tensor | None, relative: Relative | None = None) -> Tensor:
        read = self.before(0, inputs)
        attended = self.attention(read, self.attention.keys_values(read), mask, relative=relative)
        inputs = self.after(0, inputs, attended)
        return self.after(1, inputs, self.feed_forward(self.before(1, inputs)))


class DecoderLayer(_Layer):
    def __init__(
        self,
        hidden_size: int,
        inner_size: int,
        heads: int,
        dropout: float,
        norm: Norm,
        *,
        activation: Activation = functional.relu,
        variation: Variation | None = None,
    ) -> None:
        variation = Variation() if variation is None else variation
        super().__init__(3, hidden_size, dropout, norm, variation)
        self.self_attention = Attention(hidden_size, heads, variation=variation)
        self.cross_attention = Attention(hidden_size, heads, variation=variation)
        self.feed_forward = _FeedForward(hidden_size, inner_size, activation, variation)

    def forward(
        self,
        inputs: Tensor,
        memory: KeyValue,
        mask: Tensor | None,
        past: KeyValue | None,
        biases: Tensor | None = None,
    ) -> tuple[Tensor, KeyValue]:
        """Without `past` the inputs are a sentence and each token sees those before it; with it they are one token.

        `biases` `[1, H, T, tokens]` are added to the scores of self-attention, minus infinity for later tokens.
        """
        inputs, kept = self._read_target(inputs, past, biases)
        return self._read_source(inputs, memory, mask), kept

    def with_attention(
        self, inputs: Tensor, memory: KeyValue, mask: Tensor | None, head: int, biases: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs for whole sentences, and the logarithms of a head's cross-attention `[B, T, S]`."""
        inputs, _ = self._read_target(inputs, None, biases)
        weights = self.cross_attention.head_log_weights(self.before(1, inputs), memory[0], mask, head)
        return self._read_source(inputs, memory, mask), weights

    def _read_target(self, inputs: Tensor, past: KeyValue | None, biases: Tensor | None) -> tuple[Tensor, KeyValue]:
        read = self.before(0, inputs)
        keys, values = self.self_attention.keys_values(read)
        if past is not None:
            keys, values = torch.cat([past[0], keys], dim=2), torch.cat([past[1], values], dim=2)
        attended = self.self_attention(read, (keys, values), biases, causal=past is None and biases is None)
        return self.after(0, inputs, attended), (keys, values)

    def _read_source(self, inputs: Tensor, memory: KeyValue, mask: Tensor | None) -> Tensor:
        inputs = self.after(1, inputs, self.cross_attention(self.before(1, inputs), memory, mask))
        return self.after(2, inputs, self.feed_forward(self.before(2, inputs)))


class Transformer(nn.Module):
    """Vectors in, vectors out: encoder and decoder without word vectors and output layer."""

    positions: Tensor
    """Vectors of the positions, `[max_tokens, d]`; none, `[0, d]`, where relative biases take their place."""
    target_positions: Tensor | None
    """The same of the target, where it has its own."""

    def __init__(
        self,
        hidden_size: int,
        inner_size: int,
        heads: int,
        encoder_layers: int,
        decoder_layers: int,
        *,
        dropout: float = 0.1,
        norm: Norm = "pre",
        max_tokens: int = 1024,
        activation: Activation = functional.relu,
        embedding_scale: float | None = None,
        positions: Tensor | None = None,
        target_positions: Tensor | None = None,
        decoder_sizes: Sizes | None = None,
        embedding_norm: bool = False,
        variation: Variation | None = None,
        biases: RelativeBiases | None = None,
    ) -> None:
        """`embedding_scale` multiplies word vectors, by default by the root of d; `positions` `[max_tokens, d]`.

        `decoder_sizes` are the decoder's where they are not the encoder's. With `embedding_norm` the sum of word vector
        and position is normalized. A network with `biases` has no vectors of positions.

        Raises `ValueError` where the heads do not divide the hidden size or a sentence could have no position.
        """
        super().__init__()
        variation = Variation() if variation is None else variation
        sides = Sizes(inner_size, heads), Sizes(inner_size, heads) if decoder_sizes is None else decoder_sizes
        if variation.head_size is None and (any(hidden_size % side.heads for side in sides) or hidden_size % 2):
            raise ValueError(f"hidden_size must be even and divisible by heads, not {hidden_size} and {heads}")
        self.hidden_size = hidden_size
        self.embedding_scale = math.sqrt(hidden_size) if embedding_scale is None else embedding_scale
        self.encoder = nn.ModuleList(
            EncoderLayer(hidden_size, inner_size, heads, dropout, norm, activation=activation, variation=variation)
            for _ in range(encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(
                hidden_size,
                sides[1].inner_size,
                sides[1].heads,
                dropout,
                norm,
                activation=activation,
                variation=variation,
            )
            for _ in range(decoder_layers)
        )
        self.encoder_norm, self.decoder_norm = (
            variation.norm(hidden_size) if norm == "pre" else nn.Identity() for _ in sides
        )
        self.embedding_norm, self.target_embedding_norm = (
            variation.norm(hidden_size) if embedding_norm else nn.Identity() for _ in sides
        )
        self.dropout = Dropout(dropout)
        table = sinusoidal_positions(max_tokens if biases is None else 0, hidden_size)
        self.register_buffer("positions", table if positions is None else positions, persistent=False)
        self.register_buffer("target_positions", target_positions, persistent=False)
        self.biases = biases
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Initialize weights by Glorot and Bengio (2010) and biases by 0, as fairseq and tensor2tensor do."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def encode(self, inputs: Tensor, mask: Tensor | None) -> Tensor:
        """Return context vectors `[B, S, d]` of source word vectors `[B, S, d]`; `mask` as of `padding_mask`."""
        hidden = self.embed_source(inputs)
        if self.biases is not None:
            biases = self.biases.of_source(inputs.shape[1])
            mask = biases if mask is None else biases.masked_fill(~mask, -torch.inf)
        for layer in self.encoder:
            hidden = layer(hidden, mask)
        outputs: Tensor = self.encoder_norm(hidden)
        return outputs

    def remember(self, encoded: Tensor) -> Memory:
        """Return cross-attention keys and values of the source, computed once: `[B, S, d]` -> L pairs."""
        return [layer.cross_attention.keys_values(encoded) for layer in self.decoder_layers()]

    def decode(self, inputs: Tensor, memory: Memory, mask: Tensor | None, past: Cache | None = None) -> Decoded:
        """Return context vectors `[B, T, d]` of target word vectors `[B, T, d]`, and the `past` of a continuation.

        The inputs are whole sentences without `past`; with it `T` is 1.
        """
        start = 0 if past is None else past[0][0].shape[2]
        places = torch.arange(start, start + inputs.shape[1], device=inputs.device)
        hidden, biases = self.embed_target(inputs, places), self._target_biases(places)
        cache: Cache = []
        for index, layer in enumerate(self.decoder_layers()):
            hidden, kept = layer(hidden, memory[index], mask, None if past is None else past[index], biases)
            cache.append(kept)
        return self.decoder_norm(hidden), cache

    def decode_with_attention(
        self, inputs: Tensor, memory: Memory, mask: Tensor | None, layer: int, head: int
    ) -> tuple[Tensor, Tensor]:
        """Return context vectors of whole sentences as `decode` does, and the cross-attention of one head.

        The latter are logarithms of weights, in float32: `[B, T, S]`.
        """
        places = torch.arange(inputs.shape[1], device=inputs.device)
        hidden, biases = self.embed_target(inputs, places), self._target_biases(places)
        layers = self.decoder_layers()
        for each, keys_values in zip(layers[:layer], memory, strict=False):
            hidden, _ = each(hidden, keys_values, mask, None, biases)
        hidden, weights = layers[layer].with_attention(hidden, memory[layer], mask, head, biases)
        for each, keys_values in zip(layers[layer + 1 :], memory[layer + 1 :], strict=True):
            hidden, _ = each(hidden, keys_values, mask, None, biases)
        outputs: Tensor = self.decoder_norm(hidden)
        return outputs, weights

    def encoder_layers(self) -> list[EncoderLayer]:
        return [layer for layer in self.encoder if isinstance(layer, EncoderLayer)]

    def decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def embed_source(self, vectors: Tensor) -> Tensor:
        """Return what the encoder's layers read: word vectors `[B, S, d]` with their positions."""
        positions = self.positions[: vectors.shape[1]] if self.biases is None else None
        embedded: Tensor = self.embedding_norm(self._with_positions(vectors, positions))
        return self.dropout(embedded)

    def embed_target(self, vectors: Tensor, places: Tensor) -> Tensor:
        """Return what the decoder's layers read: word vectors with the vectors of positions.

        `[B, T, d]` and positions `[T]`, or `[B, K, d]` and `[B, 1]`.
        """
        table = self.positions if self.target_positions is None else self.target_positions
        positions = functional.embedding(places, table) if self.biases is None else None
        embedded: Tensor = self.target_embedding_norm(self._with_positions(vectors, positions))
        return self.dropout(embedded)

    def _with_positions(self, vectors: Tensor, positions: Tensor | None) -> Tensor:
        """Add positions to word vectors of expected norm 1, which are scaled up to the positions' (section 3.4)."""
        scaled = vectors * self.embedding_scale
        return scaled if positions is None else scaled + positions

    def _target_biases(self, places: Tensor) -> Tensor | None:
        """Return the biases of target tokens at `places` `[T]` by those up to them: `[1, H, T, tokens]`."""
        if self.biases is None:
            return None
        keys = torch.arange(int(places[-1]) + 1, device=places.device)
        found = self.biases.of_target(places[None], keys[None])
        return found.masked_fill(keys > places[:, None], -torch.inf)
