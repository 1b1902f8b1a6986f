"""Evaluation in batches: dropout off, no gradients, results in the order of the split."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import nn

from training.data.batching import Batches, ExampleBatch

__all__ = ["evaluate_batches", "evaluate_examples"]


T = TypeVar("T")
BatchT = TypeVar("BatchT")
ExampleT = TypeVar("ExampleT", bound=ExampleBatch)


def evaluate_batches(
    model: nn.Module, batches: Batches[BatchT], compute: Callable[[BatchT], T]
) -> Iterator[tuple[BatchT, T]]:
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


def evaluate_examples(
    model: nn.Module, batches: Batches[ExampleT], compute: Callable[[ExampleT], Iterable[T]]
) -> list[T]:
    """Return the results of all examples in the order of their split; `compute` returns those of a batch."""
    found: dict[int, T] = {}
    for batch, results in evaluate_batches(model, batches, compute):
        found |= zip(batch.indices.tolist(), results, strict=True)
    return [found[index] for index in sorted(found)]
