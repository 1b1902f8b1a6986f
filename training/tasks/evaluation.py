"""Evaluation in batches: dropout off, no gradients, results in the order of the split."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import nn

from training.data.batching import Batches, ExampleBatch
from training.run.distributed import ALONE, Group

__all__ = ["evaluate_batches", "evaluate_examples"]


T = TypeVar("T")
BatchT = TypeVar("BatchT")
ExampleT = TypeVar("ExampleT", bound=ExampleBatch)


def evaluate_batches(
    model: nn.Module, batches: Batches[BatchT], compute: Callable[[BatchT], T], group: Group = ALONE
) -> Iterator[tuple[BatchT, T]]:
    """Yield each batch with its result; `compute` runs with dropout off and without gradients.

    Each process of a group computes every `size`-th batch.
    """
    was_training = model.training
    model.eval()
    try:
        for batch in itertools.islice(batches.epoch(0), group.rank, None, group.size):
            with torch.no_grad():
                result = compute(batch)
            yield batch, result
    finally:
        model.train(was_training)


def evaluate_examples(
    model: nn.Module, batches: Batches[ExampleT], compute: Callable[[ExampleT], Iterable[T]], group: Group = ALONE
) -> list[T]:
    """Return the results of all examples in the order of their split; `compute` returns those of a batch.

    The processes of a group, which must all call it, share the batches; each gets all results.
    """
    own: dict[int, T] = {}
    for batch, results in evaluate_batches(model, batches, compute, group):
        own |= zip(batch.indices.tolist(), results, strict=True)
    found = {index: result for part in group.gathered(own) for index, result in part.items()}
    return [found[index] for index in sorted(found)]
