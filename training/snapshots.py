"""Checkpoint averaging: the mean of the last snapshots of a model's weights (Vaswani et al. 2017, section 6.1)."""

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

__all__ = ["Snapshots"]

Weights = dict[str, Tensor]


class Snapshots:
    """The last `count` snapshots."""

    def __init__(self, count: int) -> None:
        self._kept: deque[Weights] = deque(maxlen=count)

    def take(self, model: nn.Module) -> None:
        self._kept.append(_copy(model))

    @contextlib.contextmanager
    def averaged(self, model: nn.Module) -> Iterator[None]:
        """Within the block the model has the mean weights; as long as there is no snapshot, its own."""
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
        values = [weights[name] for weights in self._kept]
        return torch.stack(values).mean(0) if values[0].is_floating_point() else values[-1]

    def state(self) -> list[Weights]:
        return list(self._kept)

    def load(self, state: Sequence[Weights]) -> None:
        self._kept.clear()
        self._kept.extend(state)


def _copy(model: nn.Module) -> Weights:
    return {name: value.clone() for name, value in model.state_dict().items()}
