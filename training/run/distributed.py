"""Data-parallel training in the processes that `torchrun` starts: each computes its share of every batch's rows.

All processes read all data and hold all weights. Gradients are those of the whole batch's mean loss, summed over the
processes, so that the updates, and with them the loss curve, are those of one process.
"""

import contextlib
import datetime
import importlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import distributed, nn

from training.data.batching import tensors_of, with_tensors

__all__ = ["ALONE", "Group", "joined"]

T = TypeVar("T")

_TIMEOUT = datetime.timedelta(hours=2)
"""Longest wait for another process: the first one writes checkpoints, and shares of an evaluation differ."""


@dataclass(frozen=True, slots=True)
class Group:
    """The process group of one training run; a single process by default, which then communicates with none."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Return whether this is rank 0, the process that writes and reports."""
        return self.rank == 0

    def share(self, batch: T) -> T | None:
        """Return this process's rows of a batch, a dataclass of tensors `[B, ...]`; None where it has none.

        Every `size`-th row, since neighbours are of similar length.
        """
        if self.size == 1:
            return batch
        mine = with_tensors(batch, lambda tensor: tensor[self.rank :: self.size])
        return mine if all(map(len, tensors_of(mine).values())) else None

    def summed(self, value: float) -> float:
        """Return the sum of a number over the processes (all-reduce)."""
        return self.summed_each([value])[0]

    def summed_each(self, values: list[float]) -> list[float]:
        """Return the sum of each number over the processes, in one message."""
        if self.size == 1:
            return values
        totals = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(totals)
        return totals.tolist()

    # Not DistributedDataParallel, whose backward pass waits for every process: where a batch has fewer rows than there
    # are processes, it never returns. Where all have rows, it makes 36.2 steps/s and this 36.0 (2 processes, gloo,
    # LSTM with d = 128, V = 2,000); 2.41 and 2.34 with d = 256, V = 8,000 and a mixture.
    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace gradients by their sums over the processes, in one message; an absent one counts as zeros."""
        if self.size == 1:
            return
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        grads = [torch.zeros_like(each) if each.grad is None else each.grad for each in trained]
        total = nn.utils.parameters_to_vector(grads)
        distributed.all_reduce(total)
        nn.utils.vector_to_parameters(total, grads)
        for parameter, grad in zip(trained, grads, strict=True):
            parameter.grad = grad

    def from_first(self, value: T) -> T:
        """Return the value of rank 0 (broadcast)."""
        if self.size == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values)
        return values[0]

    def gathered(self, value: T) -> list[T]:
        """Return the values of all processes in order of rank (all-gather)."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values


ALONE = Group()
"""A single process."""


@contextlib.contextmanager
def joined(device: torch.device) -> Iterator[tuple[Group, torch.device]]:
    """Join the process group that `torchrun` started; yield it and this process's device.

    `cuda` becomes the GPU of this process's local rank. Raises `ValueError` for a GPU that all would share, or for more
    processes than GPUs.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE, device
        return
    if device.type == "cuda":
        device = _own_gpu(device)
        torch.cuda.set_device(device)
    # Numbers and objects are exchanged between CPUs, gradients where the model is.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    # `torch.distributed.nn.functional`, which optimizers import, has `group.WORLD` as a default argument of functions.
    # If it were imported after the group was created, they would keep the group and its threads alive, and a thread
    # that releases a tensor while the interpreter shuts down aborts the process.
    importlib.import_module("torch.distributed.nn.functional")
    distributed.init_process_group(backend, timeout=_TIMEOUT)
    try:
        yield Group(distributed.get_rank(), distributed.get_world_size()), device
    finally:
        distributed.destroy_process_group()


def _own_gpu(device: torch.device) -> torch.device:
    """Return the GPU of this process's local rank; raise `ValueError` for a fixed GPU or too few of them."""
    if ":" in str(device):
        raise ValueError(f"device {device} would be shared by several processes; with `cuda` each has its own")
    index, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if index >= count:
        raise ValueError(f"there are {count} GPUs, too few for the processes started; lower --nproc-per-node")
    return torch.device("cuda", index)
