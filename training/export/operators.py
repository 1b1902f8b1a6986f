"""Operators that exported graphs take from ONNX Runtime as a whole, with what they compute in torch.

Shapes: `B` sentences, `T` queries, `S` keys, `M` slots of a cache, `d` hidden size, `H` heads.

Tracing for TorchScript and eager runs take the plain functions, so that all backends have one definition to meet.
"""

import torch
from torch import Tensor

__all__ = ["ATTEND", "ATTEND_SOME", "WRITE_SLOTS", "attend", "attend_some", "write_slots"]


def _heads(vectors: Tensor, heads: int) -> Tensor:
    """`[B, S, d]` -> `[B, H, S, d / H]`; a tensor that has heads stays as it is."""
    return vectors if vectors.dim() == 4 else vectors.unflatten(-1, (heads, -1)).transpose(1, 2)


def _attend_some(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, heads: int) -> Tensor:
    query = _heads(query, heads)
    scores = query @ _heads(keys, heads).transpose(2, 3) * query.shape[-1] ** -0.5 + bias
    mixed = torch.softmax(scores, dim=-1) @ _heads(values, heads)
    return mixed.transpose(1, 2).flatten(2)


def _attend(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, heads: int) -> Tensor:
    width = keys.shape[-2]
    seen = torch.arange(width, device=lengths.device) < lengths[:, None]
    return _attend_some(query, keys, values, torch.where(seen, 0.0, -torch.inf)[:, None, None], heads)


def _write_slots(cache: Tensor, update: Tensor, start: Tensor) -> Tensor:
    slots = start[:, None] + torch.arange(update.shape[2], device=start.device)
    return cache.scatter(2, slots[:, None, :, None].expand_as(update), update)


_whole_attend = torch.library.custom_op("softserve::attend", _attend, mutates_args=())
_whole_attend_some = torch.library.custom_op("softserve::attend_some", _attend_some, mutates_args=())
_whole_write_slots = torch.library.custom_op("softserve::write_slots", _write_slots, mutates_args=())


@_whole_attend.register_fake
def _attend_shape(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, heads: int) -> Tensor:
    return torch.empty_like(query)


@_whole_attend_some.register_fake
def _attend_some_shape(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, heads: int) -> Tensor:
    return torch.empty_like(query)


@_whole_write_slots.register_fake
def _write_slots_shape(cache: Tensor, update: Tensor, start: Tensor) -> Tensor:
    return torch.empty_like(cache)


ATTEND = torch.ops.softserve.attend.default
ATTEND_SOME = torch.ops.softserve.attend_some.default
WRITE_SLOTS = torch.ops.softserve.write_slots.default
"""What exporters find in a traced program in place of the functions below."""


def attend(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """Multi-head attention to the first `lengths` `[B]` keys of each sentence (Vaswani et al. 2017, section 3.2).

    query `[B, T, d]`, keys and values `[B, S, d]` or `[B, H, S, d / H]` -> `[B, T, d]`.
    """
    chosen = _whole_attend if torch.compiler.is_exporting() else _attend
    mixed: Tensor = chosen(query, keys, values, lengths, heads)
    return mixed


def attend_some(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, heads: int) -> Tensor:
    """As `attend`, with `bias` `[B, 1, T, S]` to add to the scores: minus infinity where a query may not look."""
    chosen = _whole_attend_some if torch.compiler.is_exporting() else _attend_some
    mixed: Tensor = chosen(query, keys, values, bias, heads)
    return mixed


def write_slots(cache: Tensor, update: Tensor, start: Tensor) -> Tensor:
    """The cache `[B, H, M, d / H]` with `update` `[B, H, T, d / H]` in the T slots from `start` `[B]` on."""
    chosen = _whole_write_slots if torch.compiler.is_exporting() else _write_slots
    written: Tensor = chosen(cache, update, start)
    return written
