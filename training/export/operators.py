"""Operators that exported graphs take from ONNX Runtime as a whole, with what they compute in torch.

Shapes: `B` sentences, `T` queries, `S` keys, `M` slots of a cache, `d` hidden size, `H` heads.

Tracing for TorchScript and eager runs take the plain functions, so that all backends have one definition to meet.
"""

from collections.abc import Callable
from typing import ParamSpec

import torch
from torch import Tensor

__all__ = ["ATTEND", "ATTEND_SOME", "WRITE_SLOTS", "attend", "attend_some", "write_slots"]

P = ParamSpec("P")


def _heads(vectors: Tensor, heads: int) -> Tensor:
    """Split vectors into heads, `[B, S, d]` -> `[B, H, S, d / H]`; a tensor that has heads stays as it is."""
    return vectors if vectors.dim() == 4 else vectors.unflatten(-1, (heads, -1)).transpose(1, 2)


def _exported_whole(plain: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Return a function that is one operator, `softserve::<name>`, while a graph is exported.

    The operator's output has the shape of its first argument.
    """
    whole = torch.library.custom_op(f"softserve::{plain.__name__}", plain, mutates_args=())
    whole.register_fake(lambda first, *others: torch.empty_like(first))

    def chosen(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        result: Tensor = (whole if torch.compiler.is_exporting() else plain)(*args, **kwargs)
        return result

    return chosen


@_exported_whole
def attend_some(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, heads: int) -> Tensor:
    """As `attend`, with `bias` `[B, 1, T, S]` to add to the scores: minus infinity where a query may not look."""
    query = _heads(query, heads)
    scores = query @ _heads(keys, heads).transpose(2, 3) * query.shape[-1] ** -0.5 + bias
    mixed = torch.softmax(scores, dim=-1) @ _heads(values, heads)
    return mixed.transpose(1, 2).flatten(2)


@_exported_whole
def attend(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """Multi-head attention to the first `lengths` `[B]` keys of each sentence (Vaswani et al. 2017, section 3.2).

    query `[B, T, d]`, keys and values `[B, S, d]` or `[B, H, S, d / H]` -> `[B, T, d]`.
    """
    width = keys.shape[-2]
    seen = torch.arange(width, device=lengths.device) < lengths[:, None]
    return attend_some(query, keys, values, torch.where(seen, 0.0, -torch.inf)[:, None, None], heads)


@_exported_whole
def write_slots(cache: Tensor, update: Tensor, start: Tensor) -> Tensor:
    """Return the cache `[B, H, M, d / H]` with `update` `[B, H, T, d / H]` in the T slots from `start` `[B]` on."""
    slots = start[:, None] + torch.arange(update.shape[2], device=start.device)
    return cache.scatter(2, slots[:, None, :, None].expand_as(update), update)


ATTEND = torch.ops.softserve.attend.default
ATTEND_SOME = torch.ops.softserve.attend_some.default
WRITE_SLOTS = torch.ops.softserve.write_slots.default
"""The operators that exporters find in a traced program in place of these functions."""
