"""Causal Transformers: one network for the decoders that language models of several families are.

Every layer is attention to the tokens so far and a feed-forward network. Families differ in norms, positions, heads and
activations, which `CausalSettings` describes.

Shapes: `B` texts, `T` tokens, `P` tokens of a prefix that are not read again, `L` layers, `N` vectors, `V` tokens of
the vocabulary, `d` hidden size, `f` inner size, `H` heads, `G` key-value heads, `s` head size, `r` rotated coordinates
of a head.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.networks.dropout import Dropout
from training.networks.operators import attend_after, attend_some
from training.networks.transformer import RmsNorm

__all__ = [
    "ActivationName",
    "Attended",
    "CausalAttention",
    "CausalHead",
    "CausalLayer",
    "CausalSettings",
    "CausalTransformer",
    "FeedForward",
    "KeysValues",
    "LayerSettings",
    "Llama3Scaling",
    "RmsNorm",
    "Rotary",
    "soft_capped",
]

ActivationName = Literal["gelu", "gelu_tanh", "relu", "silu"]
_ACTIVATIONS: Mapping[ActivationName, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda values: functional.gelu(values, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Llama3Scaling:
    """Scaling of rotary frequencies for long texts, as Llama 3.1 has it: slow rotations become slower."""

    factor: float
    """Frequencies of long waves are divided by this."""
    low: float
    """Waves longer than `positions / low` are long."""
    high: float
    """Waves shorter than `positions / high` stay as they are; between the two, frequencies are interpolated."""
    positions: int
    """Positions of the texts that the model was trained on first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotary:
    """Rotary position embeddings (Su et al. 2021): coordinates of queries and keys, rotated in pairs by position."""

    size: int
    """Coordinates of each head that are rotated, the first ones."""
    base: float
    """Rotation i turns by `base ** (-2 i / size)` a position."""
    factor: float = 1.0
    """Positions are divided by this (linear scaling)."""
    llama3: Llama3Scaling | None = None

    def frequencies(self) -> Tensor:
        """Return the angle of each rotation for one position, in radians, `[r / 2]`."""
        exponents = torch.arange(0, self.size, 2, dtype=torch.int64).float() / self.size
        frequencies: Tensor = 1.0 / (self.base**exponents) / self.factor
        if self.llama3 is None:
            return frequencies
        scaling, waves = self.llama3, 2 * math.pi / frequencies
        share = (scaling.positions / waves - scaling.low) / (scaling.high - scaling.low)
        share = share.clamp(0.0, 1.0)  # 1 for short waves, 0 for long ones
        return (1 - share) * frequencies / scaling.factor + share * frequencies


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSettings:
    """What may differ between the layers of one model."""

    rotary: Rotary | None = None
    """None for models whose positions are vectors."""
    window: int | None = None
    """A token attends to so many tokens, itself included; None for all so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CausalSettings:
    """The sizes of a network, and what its family computes."""

    vocab_size: int
    hidden_size: int
    inner_size: int
    heads: int
    key_value_heads: int
    head_size: int
    positions: int
    """Longest text, in tokens."""
    layers: tuple[LayerSettings, ...]
    activation: ActivationName
    norm: Literal["layer", "rms"]
    """LayerNorm (Ba et al. 2016) with a bias, or RMSNorm (Zhang and Sennrich 2019) without."""
    epsilon: float
    """Added to variances by norms."""
    gated: bool = False
    """Whether the feed-forward network is gated: `outer(activation(gate(x)) * inner(x))` (Shazeer 2020)."""
    learned_positions: bool = False
    """Whether each position has a vector that is added to that of the token."""
    parallel: bool = False
    """Whether attention and feed-forward network read the same vectors, and both are added to them."""
    output_norms: bool = False
    """Whether the outputs of attention and feed-forward network are normalized, too."""
    head_norms: bool = False
    """Whether the queries and keys of each head are normalized."""
    projection_bias: bool = False
    """Whether queries, keys and values have biases."""
    output_bias: bool = False
    """Whether the output of attention has a bias."""
    inner_bias: bool = False
    """Whether the feed-forward network has biases."""
    attention_softcap: float | None = None
    """Bound of the scores of attention; see `soft_capped`."""
    final_softcap: float | None = None
    """Bound of the scores of tokens."""
    embedding_scale: float = 1.0
    """Factor of the tokens' vectors."""
    attention_scale: float = 1.0
    """Factor of queries; 1 for models whose weights or norms scale them."""
    dropout: float = 0.0
    """In training, of the tokens' vectors and of what attention and feed-forward network add to them."""


def soft_capped(scores: Tensor, cap: float | None) -> Tensor:
    """Return `cap * tanh(scores / cap)`, the scores themselves without a cap."""
    return scores if cap is None else cap * torch.tanh(scores / cap)


def _norm(settings: CausalSettings, size: int) -> nn.Module:
    if settings.norm == "layer":
        return nn.LayerNorm(size, settings.epsilon)
    return RmsNorm(size, settings.epsilon)


KeysValues = tuple[Tensor, Tensor]
"""Keys and values of a layer, two of `[B, G, T, s]`."""


@dataclass(frozen=True, slots=True)
class Attended:
    """What the tokens of a layer attend to, besides their own keys and values."""

    bias: Tensor
    """0 where a token attends to one of the prefix or of these, minus infinity elsewhere, `[B or 1, 1, T, P + T]`."""
    angles: Tensor | None
    """Angles of rotary positions, in radians, `[B or 1, T, r / 2]`; None where there are none."""
    prefix: KeysValues | None
    """Keys and values of the prefix, two of `[B, G, P, s]`."""


class CausalAttention(nn.Module):
    """Attention of each token to itself and tokens before it.

    Several heads share keys and values where there are fewer key-value heads (Ainslie et al. 2023).
    """

    frequencies: Tensor

    def __init__(self, settings: CausalSettings, layer: LayerSettings) -> None:
        super().__init__()
        size, inner, shared = (
            settings.hidden_size,
            settings.heads * settings.head_size,
            settings.key_value_heads * settings.head_size,
        )
        self.query = nn.Linear(size, inner, bias=settings.projection_bias)
        self.key = nn.Linear(size, shared, bias=settings.projection_bias)
        self.value = nn.Linear(size, shared, bias=settings.projection_bias)
        self.output = nn.Linear(inner, size, bias=settings.output_bias)
        self.query_norm = _norm(settings, settings.head_size) if settings.head_norms else nn.Identity()
        self.key_norm = _norm(settings, settings.head_size) if settings.head_norms else nn.Identity()
        self._settings, self._layer = settings, layer
        if layer.rotary is not None:
            self.register_buffer("frequencies", layer.rotary.frequencies(), persistent=False)

    def angles(self, positions: Tensor) -> Tensor | None:
        """Return the angles of rotary positions, in radians: `[B or 1, T]` -> `[B or 1, T, r / 2]`."""
        return None if self._layer.rotary is None else positions.float()[..., None] * self.frequencies

    def forward(self, hidden: Tensor, attended: Attended) -> tuple[Tensor, KeysValues]:
        """hidden `[B, T, d]` -> `[B, T, d]`, and the keys and values of these tokens."""
        settings = self._settings
        query, key = (
            self._rotated(norm(project(hidden).unflatten(-1, (-1, settings.head_size))), attended.angles).flatten(2)
            for project, norm in ((self.query, self.query_norm), (self.key, self.key_norm))
        )
        if settings.attention_scale != 1.0:
            query = query * settings.attention_scale
        mixed, own = self._attend(query, (key, self.value(hidden)), attended)
        output: Tensor = self.output(mixed)
        return output, own

    def _attend(self, query: Tensor, own: tuple[Tensor, Tensor], given: Attended) -> tuple[Tensor, KeysValues]:
        """Return what the tokens attend to, `[B, T, H s]`, and their own keys and values by heads.

        `query` is `[B, T, H s]`, `own` keys and values are two of `[B, T, G s]`.
        """
        settings = self._settings
        groups, times = settings.key_value_heads, settings.heads // settings.key_value_heads
        split = own[0].unflatten(-1, (groups, -1)).transpose(1, 2), own[1].unflatten(-1, (groups, -1)).transpose(1, 2)
        if given.prefix is None and settings.attention_softcap is None:
            keys, values = (_repeated(each, settings.head_size, times) for each in own) if times > 1 else own
            attend = _fused_attention if self.training else attend_some
            return attend(query, keys, values, given.bias, settings.heads), split
        bias = given.bias
        if times > 1:  # heads that share keys and values are more queries of one head, so that keys are not copied
            query = query.unflatten(-1, (groups, times, -1)).permute(0, 3, 1, 2, 4).flatten(1, 2).flatten(2)
            bias = bias.repeat(1, 1, times, 1)
        if settings.attention_softcap is None and given.prefix is not None:
            mixed, keys, values = attend_after(query, *own, *given.prefix, bias, groups)
            before = given.prefix[0].shape[2]
            split = keys[:, :, before:], values[:, :, before:]
        else:
            keys, values = split
            if given.prefix is not None:
                keys, values = (torch.cat(parts, dim=2) for parts in zip(given.prefix, split, strict=True))
            query = query.unflatten(-1, (groups, -1)).transpose(1, 2)
            scores = soft_capped(query @ keys.transpose(2, 3), settings.attention_softcap) + bias
            mixed = (torch.softmax(scores, dim=-1) @ values).transpose(1, 2).flatten(2)
        if times > 1:
            mixed = mixed.unflatten(1, (times, -1)).unflatten(-1, (groups, -1)).permute(0, 2, 3, 1, 4).flatten(2)
        return mixed, split

    def _rotated(self, vectors: Tensor, angles: Tensor | None) -> Tensor:
        """Rotate the vectors of heads by their positions: `[B, T, H, s]` of any H."""
        rotary = self._layer.rotary
        if rotary is None or angles is None:
            return vectors
        cosine, sine = angles.cos()[:, :, None], angles.sin()[:, :, None]
        half = rotary.size // 2
        first, second, rest = vectors.split([half, half, vectors.shape[-1] - rotary.size], dim=-1)
        parts = [first * cosine - second * sine, second * cosine + first * sine]
        return torch.cat([*parts, rest] if rotary.size < vectors.shape[-1] else parts, dim=-1)


def _fused_attention(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, heads: int) -> Tensor:
    """Return the same as `attend_some` by a kernel that keeps no scores: three of `[B, T, d]` -> `[B, T, d]`."""
    query, keys, values = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (query, keys, values))
    attend = functional.scaled_dot_product_attention
    if torch.is_autocast_enabled("cpu"):
        # The backward pass with bfloat16 takes several times as long as with float32, also where it is native.
        with torch.autocast("cpu", enabled=False):
            mixed = attend(query.float(), keys.float(), values.float(), attn_mask=bias, scale=1.0)
    else:
        mixed = attend(query, keys, values, attn_mask=bias.to(query.dtype), scale=1.0)
    return mixed.transpose(1, 2).flatten(2)


def _repeated(vectors: Tensor, head_size: int, times: int) -> Tensor:
    """Return each key-value head so many times in a row: `[B, T, G s]` -> `[B, T, H s]`."""
    heads: Tensor = vectors.unflatten(-1, (-1, 1, head_size)).expand(-1, -1, -1, times, -1)
    return heads.flatten(2)


class FeedForward(nn.Module):
    """The feed-forward network of a layer."""

    def __init__(self, settings: CausalSettings) -> None:
        super().__init__()
        size, inner, bias = settings.hidden_size, settings.inner_size, settings.inner_bias
        self.gate = nn.Linear(size, inner, bias=bias) if settings.gated else None
        self.inner = nn.Linear(size, inner, bias=bias)
        self.outer = nn.Linear(inner, size, bias=bias)
        self._activation = _ACTIVATIONS[settings.activation]

    def forward(self, hidden: Tensor) -> Tensor:
        """`[B, T, d]` -> `[B, T, d]`."""
        if self.gate is None:
            inner = self._activation(self.inner(hidden))
        else:
            inner = self._activation(self.gate(hidden)) * self.inner(hidden)
        output: Tensor = self.outer(inner)
        return output


class CausalLayer(nn.Module):
    """Attention and feed-forward network with their norms; what they compute is added to what they read."""

    def __init__(self, settings: CausalSettings, layer: LayerSettings) -> None:
        super().__init__()
        self.attention = CausalAttention(settings, layer)
        self.feed_forward = FeedForward(settings)
        self.attention_norm = _norm(settings, settings.hidden_size)
        self.feed_forward_norm = _norm(settings, settings.hidden_size)
        after = [_norm(settings, settings.hidden_size) if settings.output_norms else nn.Identity() for _ in range(2)]
        self.attention_output_norm, self.feed_forward_output_norm = after
        self.dropout = Dropout(settings.dropout)
        self._parallel = settings.parallel

    def forward(self, hidden: Tensor, given: Attended) -> tuple[Tensor, KeysValues]:
        """hidden `[B, T, d]` -> `[B, T, d]`, and the keys and values of these tokens."""
        attended, keys_values = self.attention(self.attention_norm(hidden), given)
        attended = self.dropout(self.attention_output_norm(attended))
        read = hidden if self._parallel else hidden + attended
        fed = self.dropout(self.feed_forward_output_norm(self.feed_forward(self.feed_forward_norm(read))))
        output: Tensor = read + fed + attended if self._parallel else read + fed
        return output, keys_values


class CausalTransformer(nn.Module):
    """Computes the hidden states before each next token."""

    def __init__(self, settings: CausalSettings) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = nn.Embedding(settings.vocab_size, settings.hidden_size)
        learned = settings.learned_positions
        self.positions = nn.Embedding(settings.positions, settings.hidden_size) if learned else None
        self.layers = nn.ModuleList(CausalLayer(settings, layer) for layer in settings.layers)
        self.norm = _norm(settings, settings.hidden_size)
        self.dropout = Dropout(settings.dropout)

    def decoder_layers(self) -> Iterator[CausalLayer]:
        """Yield the layers, first to last."""
        for layer in self.layers:
            assert isinstance(layer, CausalLayer)
            yield layer

    def forward(self, tokens: Tensor, places: Tensor | None = None, texts: Tensor | None = None) -> Tensor:
        """tokens `[B, T]` -> hidden states `[B, T, d]`; that of a token is computed from it and those before it.

        Where a row holds several texts, `texts` `[B, T]` has the number of each token's text, whose other tokens alone
        it attends to, and `places` `[B, T]` has its position there. Tokens behind the end of a text in a padded batch
        come after all of the text, so that it never sees them.
        """
        counted = torch.arange(tokens.shape[1], device=tokens.device)
        visible = (counted[:, None] >= counted)[None]
        if texts is not None:
            visible = visible & (texts[:, :, None] == texts[:, None])
        return self.read(tokens, counted[None] if places is None else places, visible)[0]

    def read(
        self, tokens: Tensor, positions: Tensor, visible: Tensor, prefix: Sequence[KeysValues] | None = None
    ) -> tuple[Tensor, list[KeysValues]]:
        """Return hidden states `[B, T, d]`, and keys and values of each layer, of texts that go on from prefixes.

        tokens `[B, T]`; `positions` `[B or 1, T]` are their places in their texts; `visible` `[B or 1, T, P + T]` says
        which tokens of the prefix, and which of these, belong to the text up to each token, itself included. `prefix`
        has for each layer keys and values of P tokens of each text, whose places are 0 to P - 1. So several
        continuations of a text can be read as one sequence.
        """
        if prefix is not None:
            before = torch.arange(prefix[0][0].shape[2], device=tokens.device)[None].expand(positions.shape[0], -1)
            places = torch.cat([before, positions], dim=1)
        else:
            places = positions
        distances = positions[:, :, None] - places[:, None]
        biases = {
            window: torch.where(visible if window is None else visible & (distances < window), 0.0, -torch.inf)[:, None]
            for window in dict.fromkeys(layer.window for layer in self.settings.layers)
        }
        hidden = self.embedding(tokens)
        if self.settings.embedding_scale != 1.0:
            hidden = hidden * self.settings.embedding_scale
        if self.positions is not None:
            hidden = hidden + self.positions(positions)
        hidden = self.dropout(hidden)
        found = []
        for index, (layer, settings) in enumerate(zip(self.decoder_layers(), self.settings.layers, strict=True)):
            given = None if prefix is None else prefix[index]
            attended = Attended(biases[settings.window], layer.attention.angles(positions), given)
            hidden, keys_values = layer(hidden, attended)
            found.append(keys_values)
        output: Tensor = self.norm(hidden)
        return output, found


class CausalHead(nn.Module):
    """Computes the scores of next tokens, whose softmax is their distribution."""

    def __init__(self, settings: CausalSettings) -> None:
        super().__init__()
        self.linear = nn.Linear(settings.hidden_size, settings.vocab_size, bias=False)
        self._cap = settings.final_softcap

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden states `[N, d]` -> scores `[N, V]`."""
        return soft_capped(self.linear(hidden), self._cap)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """hidden states `[N, d]` -> log-probabilities `[N, V]`."""
        return functional.log_softmax(self(hidden), dim=-1)
