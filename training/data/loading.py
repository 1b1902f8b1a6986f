"""Batches of an epoch, made in this process or in worker processes."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch.utils.data import DataLoader

from training.data.batching import Batches

__all__ = ["PlannedBatches", "load"]

BatchT = TypeVar("BatchT", covariant=True)


@runtime_checkable
class PlannedBatches(Batches[BatchT], Protocol[BatchT]):
    """Batches each of which can be made without those before it."""

    def plan(self, number: int) -> Sequence[Callable[[], BatchT]]:
        """Return a function for each batch of an epoch, which makes it."""


def load(batches: Batches[Any], epoch: int, *, first: int, workers: int, device: torch.device) -> Iterator[Any]:
    """Yield the batches of an epoch from number `first` on, made in that many worker processes, in this one with 0.

    For a GPU they are in pinned memory, from which it copies while it computes. Batches without a plan are made here.
    """
    if not isinstance(batches, PlannedBatches):
        return itertools.islice(batches.epoch(epoch), first, None)
    plan = batches.plan(epoch)
    if not workers and device.type != "cuda":
        return (make() for make in plan[first:])
    loader: DataLoader[Any] = DataLoader(
        plan,  # type: ignore[arg-type]  # a sequence has the methods that are used
        batch_size=None,
        sampler=range(first, len(plan)),
        collate_fn=_made,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        generator=torch.Generator(),  # of its own, so that dropout is the same with any number of workers
    )
    return iter(loader)


def _made(make: Any) -> Any:
    return make()
