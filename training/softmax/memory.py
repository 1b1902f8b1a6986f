"""Memory for `[n, V]` that the chunks of a loss use one after another.

Allocating as much anew for each chunk would cost a CPU more time than four passes over it: the pages of large blocks go
back to the system when they are freed.
"""

import torch
from torch import Tensor

__all__ = ["Pool", "Workspace"]

_ALIGNED = 64
"""Bytes that rows are aligned to, which CPUs multiply faster."""


class Pool:
    """Free memory of one device, which workspaces take and return."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def workspace(self) -> "Workspace":
        """Return a workspace that has taken nothing yet."""
        return Workspace(self)

    def take(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory of any content for at least that many numbers."""
        places = [i for i, each in enumerate(self._free) if each.dtype == dtype and each.numel() >= size]
        if not places:
            return torch.empty(size, dtype=dtype, device=device)
        return self._free.pop(min(places, key=lambda i: self._free[i].numel()))

    def give(self, memory: list[Tensor]) -> None:
        """Receive memory that is not used any more."""
        self._free += memory


class Workspace:
    """Memory that a chunk of one component uses until it releases all of it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._taken: list[Tensor] = []

    def rows(self, count: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a matrix `[count, columns]` of any content, in aligned rows."""
        aligned = _ALIGNED // dtype.itemsize
        stride = -(-columns // aligned) * aligned
        memory = self._pool.take(count * stride, dtype, device)
        self._taken.append(memory)
        # Not a view, which autograd would not let functions return.
        return memory.new_empty(0).set_(memory.untyped_storage(), 0, (count, columns), (stride, 1))

    def like(self, matrix: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return a matrix of the shape and device of another one, and of its type unless one is given."""
        count, columns = matrix.shape
        return self.rows(count, columns, dtype or matrix.dtype, matrix.device)

    def release(self) -> None:
        """Return all memory to the pool; its matrices must not be used any more."""
        self._pool.give(self._taken)
        self._taken = []
