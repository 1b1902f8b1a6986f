"""Evaluation in batches: dropout off, no gradients, results in the order of the split."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from training.tasks.task import Batches

__all__ = ["in_order", "in_turn"]


class IndexedBatch(Protocol):
    """Examples of a split, in any order."""

    @property
    def indices(self) -> Tensor:
        """`[B]`: places of the examples in their split."""
        ...


T = TypeVar("T")
BatchT = TypeVar("BatchT")
IndexedT = TypeVar("IndexedT", bound=IndexedBatch)


def in_turn(model: nn.Module, batches: Batches[BatchT], compute: Callable[[BatchT], T]) -> Iterator[tuple[BatchT, T]]:
    """Yield each batch with its result; `compute` runs with dropout off and without gradients."""
    was_training = model.training
    model.eval()
    try:
        for batch in batches.epoch(0):
            with torch.no_grad():
                result = compute(batch)
            yield batch, result
    finally:
        model.train(was_training)


def in_order(model: nn.Module, batches: Batches[IndexedT], compute: Callable[[IndexedT], Iterable[T]]) -> list[T]:
    """Return the results of all examples in the order of their split; `compute` returns those of a batch."""
    found: dict[int, T] = {}
    for batch, results in in_turn(model, batches, compute):
        found |= zip(batch.indices.tolist(), results, strict=True)
    return [found[index] for index in sorted(found)]
