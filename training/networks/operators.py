"""Operators that exported graphs take from ONNX Runtime as a whole, with what they compute in torch.

Shapes: `B` sentences, `T` queries, `S` keys, `P` keys before them, `K` hypotheses, `M` slots of a cache, `d` hidden
size, `H` heads.

Queries come scaled (see `training.bundling.attention`): the product of one query with keys is then a plain one, for
which ONNX Runtime has a faster kernel.

Tracing for TorchScript and eager runs take the plain functions, so that all backends have one definition to meet.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

__all__ = [
    "ATTEND",
    "ATTEND_AFTER",
    "ATTEND_SOME",
    "WRITE_SLOTS",
    "attend",
    "attend_after",
    "attend_some",
    "slot_indices",
    "write_slots",
]

P = ParamSpec("P")
R = TypeVar("R")


def _heads(vectors: Tensor, heads: int) -> Tensor:
    """Split vectors into heads, `[B, S, d]` -> `[B, H, S, d / H]`; a tensor that has heads stays as it is."""
    return vectors if vectors.dim() == 4 else vectors.unflatten(-1, (heads, -1)).transpose(1, 2)


def _as_the_first(first: Tensor, *_: object) -> Tensor:
    return torch.empty_like(first)


def _exported_whole(shapes: Callable[..., Any] = _as_the_first) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that makes a function one operator, `softserve::<name>`, while a graph is exported.

    `shapes` returns tensors of the operator's shapes for its arguments; by default one as the first argument.
    """

    def decorated(plain: Callable[P, R]) -> Callable[P, R]:
        whole = torch.library.custom_op(f"softserve::{plain.__name__}", plain, mutates_args=())
        whole.register_fake(shapes)

        def chosen(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = (whole if torch.compiler.is_exporting() else plain)(*args, **kwargs)
            return result

        return chosen

    return decorated


@_exported_whole()
def attend_some(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, heads: int) -> Tensor:
    """As `attend`, with `bias` `[B, 1 or H, T, S]` to add to the scores: minus infinity where a query may not look."""
    query = _heads(query, heads)
    scores = query @ _heads(keys, heads).transpose(2, 3) + bias
    mixed = torch.softmax(scores, dim=-1) @ _heads(values, heads)
    return mixed.transpose(1, 2).flatten(2)


def _with_all_keys(
    query: Tensor, keys: Tensor, values: Tensor, past_keys: Tensor, past_values: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, past, size = past_keys.shape
    every = past_keys.new_empty(batch, heads, past + keys.shape[1], size)
    return torch.empty_like(query), every, torch.empty_like(every)


@_exported_whole(_with_all_keys)
def attend_after(
    query: Tensor, keys: Tensor, values: Tensor, past_keys: Tensor, past_values: Tensor, bias: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """As `attend_some` with keys and values before these, two of `[B, H, P, d / H]`, and `bias` `[B, 1, T, P + S]`.

    Returns all keys and values too, two of `[B, H, P + S, d / H]`.
    """
    all_keys, all_values = (
        torch.cat([past, _heads(own, heads)], dim=2) for past, own in ((past_keys, keys), (past_values, values))
    )
    return attend_some(query, all_keys, all_values, bias, heads), all_keys, all_values


@_exported_whole()
def attend(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """Multi-head attention to the first `lengths` `[B]` keys of each sentence (Vaswani et al. 2017, section 3.2).

    query `[B, T, d]`, keys and values `[B, S, d]` or `[B, H, S, d / H]` -> `[B, T, d]`.
    """
    width = keys.shape[-2]
    seen = torch.arange(width, device=lengths.device) < lengths[:, None]
    return attend_some(query, keys, values, torch.where(seen, 0.0, -torch.inf)[:, None, None], heads)


@_exported_whole()
def write_slots(cache: Tensor, update: Tensor, indices: Tensor) -> Tensor:
    """Return the cache `[B, H, M, d / H]` with `update` `[B, K, H, d / H]` at `indices` `[B, K, H, 3]`."""
    return cache.index_put(indices.unbind(-1), update)


def slot_indices(slots: Tensor, heads: int) -> Tensor:
    """Return sentence, head and slot of each vector that is written: slots `[B, K]` -> `[B, K, H, 3]`."""
    shape = (*slots.shape, heads)
    sentences = torch.arange(slots.shape[0], device=slots.device)[:, None, None].expand(shape)
    every_head = torch.arange(heads, device=slots.device).expand(shape)
    return torch.stack([sentences, every_head, slots[:, :, None].expand(shape)], dim=-1)


ATTEND = torch.ops.softserve.attend.default
ATTEND_AFTER = torch.ops.softserve.attend_after.default
ATTEND_SOME = torch.ops.softserve.attend_some.default
WRITE_SLOTS = torch.ops.softserve.write_slots.default
"""The operators that exporters find in a traced program in place of these functions."""
