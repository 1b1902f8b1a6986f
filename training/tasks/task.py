"""What a task is to the training loop."""

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["Batches", "Quality", "Task"]

BatchT = TypeVar("BatchT")
BatchOut = TypeVar("BatchOut", covariant=True)


class Batches(Protocol[BatchOut]):
    """One corpus split, cut into batches; the same epoch number always gives the same batches in the same order."""

    def __len__(self) -> int: ...

    def epoch(self, number: int) -> Iterator[BatchOut]: ...


class Quality(Protocol):
    """What an evaluation found."""

    @property
    def value(self) -> float:
        """The metric that models are selected by."""
        ...


class Task(Protocol[BatchT]):
    """Batches, a loss per batch, and a metric to select models by."""

    metric: str
    """Name of the metric."""
    maximize: bool
    """Whether a larger metric is better."""
    device: torch.device

    @property
    def model(self) -> nn.Module: ...

    def initialize(self) -> None:
        """Takes over what a new run starts from beside fresh parameters, such as a pretrained encoder."""
        ...

    def batches(self, split: str) -> Batches[BatchT]:
        """Batches of a split; those of `train` are shuffled."""
        ...

    def loss(self, batch: BatchT) -> tuple[Tensor, int]:
        """Summed loss over the batch's targets, and their number."""
        ...

    def evaluate(self, batches: Batches[BatchT]) -> Quality:
        """The metric on a split, dropout off; leaves the training state as it was."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What besides the model a run needs to resume exactly."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
