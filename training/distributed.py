"""Training in several processes, as `torchrun` starts them: each takes its share of every batch's rows.

All processes read all data and hold all weights. Gradients are those of the whole batch's mean loss, summed over the
processes, so that the updates, and with them the loss curve, are those of one process.
"""

import contextlib
import datetime
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

__all__ = ["Group", "joined"]

T = TypeVar("T")

_PATIENCE = datetime.timedelta(hours=2)
"""How long the others wait for the first process, which alone evaluates and writes."""


@dataclass(frozen=True, slots=True)
class Group:
    """The processes of one training; without arguments a single one, for which everything here is free."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that evaluates, writes and reports."""
        return self.rank == 0

    def share(self, batch: T) -> T | None:
        """This process's rows of a batch, a dataclass of tensors `[B, ...]`; None where it has fewer rows than needed.

        Every `size`-th row, since neighbours are of similar length.
        """
        if self.size == 1:
            return batch
        everything: Any = batch
        values = {each.name: getattr(batch, each.name) for each in fields(everything)}
        rows = {name: value[self.rank :: self.size] for name, value in values.items() if isinstance(value, Tensor)}
        if not all(map(len, rows.values())):
            return None
        mine: T = replace(everything, **rows)
        return mine

    def summed(self, value: float) -> float:
        """The sum of a number over the processes."""
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(total)
        return float(total)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replaces gradients by their sums over the processes; one that is absent counts as zeros."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)

    def from_first(self, value: T) -> T:
        """What the first process has for this value."""
        if self.size == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values)
        return values[0]

    def gathered(self, value: T) -> list[T]:
        """Every process's value, in order of rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values


@contextlib.contextmanager
def joined(device: torch.device) -> Iterator[tuple[Group, torch.device]]:
    """The processes that `torchrun` started together with this one, and the device of this one.

    `cuda` becomes the GPU that is this process's own. Raises `ValueError` for a GPU that all would share, or for more
    processes than GPUs.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Group(), device
        return
    if device.type == "cuda":
        device = _own_gpu(device)
        torch.cuda.set_device(device)
    # What the processes agree on besides gradients lies on the CPU.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=_PATIENCE)
    try:
        yield Group(distributed.get_rank(), distributed.get_world_size()), device
    finally:
        distributed.destroy_process_group()


def _own_gpu(device: torch.device) -> torch.device:
    if ":" in str(device):
        raise ValueError(f"device {device} would be shared by several processes; with `cuda` each has its own")
    index, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if index >= count:
        raise ValueError(f"there are {count} GPUs, too few for the processes started; lower --nproc-per-node")
    return torch.device("cuda", index)
