"""Checkpoint averaging: the mean of the last snapshots of a model's weights (Vaswani et al. 2017, section 6.1)."""

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

__all__ = ["Snapshots"]

Weights = dict[str, Tensor]


# Not torch.optim.swa_utils.AveragedModel: it keeps one running average of all weights since it was started, from which
# the weights that leave the window of the last k snapshots cannot be removed.
class Snapshots:
    """Keep the last `count` snapshots of a model's weights, and evaluate with their mean."""

    def __init__(self, count: int) -> None:
        self._kept: deque[Weights] = deque(maxlen=count)

    def take(self, model: nn.Module) -> None:
        """Add a copy of the current weights; the oldest of more than `count` is dropped."""
        self._kept.append(_copy(model))

    @contextlib.contextmanager
    def averaged(self, model: nn.Module) -> Iterator[None]:
        """Give the model the mean weights within the block; without a snapshot it keeps its own."""
        if not self._kept:
            yield
            return
        own = _copy(model)
        model.load_state_dict({name: self._mean(name) for name in own})
        try:
            yield
        finally:
            model.load_state_dict(own)

    def _mean(self, name: str) -> Tensor:
        """Return the mean of floating-point weights; of integer buffers, such as counters, the last value."""
        values = [weights[name] for weights in self._kept]
        return torch.stack(values).mean(0) if values[0].is_floating_point() else values[-1]

    def state(self) -> list[Weights]:
        """Return the snapshots, the oldest first, for a checkpoint."""
        return list(self._kept)

    def load(self, state: Sequence[Weights]) -> None:
        """Replace the snapshots by those of a checkpoint."""
        self._kept.clear()
        self._kept.extend(state)


def _copy(model: nn.Module) -> Weights:
    return {name: value.clone() for name, value in model.state_dict().items()}
