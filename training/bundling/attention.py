"""The projections of attention as they are exported.

Queries, keys and values come from three products: one joined product was measured as fast for one vector and up to 10 %
slower for more, since its result must be split.

Shapes: `B` sequences, `T` tokens, `N` = `B T` vectors, `d` hidden size.
"""

from collections.abc import Iterable

from torch import Tensor, nn

from training.networks.transformer import Attention

__all__ = ["KeyValue", "Projections", "projections", "scaled_query"]


class KeyValue(nn.Module):
    """The projections of vectors `[N, d]` to keys and values."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        weights, bias = attention.key_value.weight.detach().chunk(2), attention.key_value.bias  # views
        biases = (None, None) if bias is None else bias.detach().chunk(2)
        self.key, self.value = (_linear(*parts) for parts in zip(weights, biases, strict=True))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return self.key(hidden), self.value(hidden)


class Projections(nn.Module):
    """The projections of vectors `[N, d]` to scaled queries, keys and values."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        parts = KeyValue(attention)
        self.query, self.key, self.value = scaled_query(attention), parts.key, parts.value

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query(hidden), self.key(hidden), self.value(hidden)


def projections(attentions: Iterable[Attention]) -> nn.ModuleList:
    """Return the projections of each layer's self-attention."""
    return nn.ModuleList(map(Projections, attentions))


def scaled_query(attention: Attention) -> nn.Linear:
    """Return the projection to queries, scaled as attention scales scores."""
    weight, bias = attention.query.weight.detach(), attention.query.bias
    if attention.scale == 1.0:
        return _linear(weight, None if bias is None else bias.detach())
    return _linear(weight * attention.scale, None if bias is None else bias.detach() * attention.scale)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta").requires_grad_(False)
    state = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    linear.load_state_dict(state, assign=True)
    return linear
