"""Dropout whose random numbers cost a quarter."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["Dropout"]

_VALUES = 2**16


class Dropout(nn.Dropout):
    """Inverted dropout (Srivastava et al. 2014); on CPUs torch draws 64 random bits an element, here it is 16.

    Elements are therefore dropped with the nearest probability in steps of 1 / 65,536.
    """

    __call__: Callable[..., Tensor]

    def __init__(self, p: float = 0.5, *, locked: bool = False) -> None:
        """`locked` drops the same elements at all steps of a sequence `[B, T, d]` (Gal and Ghahramani 2016)."""
        super().__init__(p)
        self.locked = locked

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return inputs
        return inputs * self._scales(inputs[:, :1] if self.locked else inputs)

    def _scales(self, inputs: Tensor) -> Tensor:
        """Return 0 where an element is dropped, else 1 / (1 - p)."""
        dropped = round(self.p * _VALUES)
        if dropped == _VALUES:
            return torch.zeros_like(inputs)
        count = inputs.numel()
        words = torch.empty(-(-count // 4), dtype=torch.int64, device=inputs.device).random_(-(2**63), None)
        values = words.view(torch.int16)[:count].view(inputs.shape)
        kept = values >= dropped - _VALUES // 2
        return kept.to(inputs.dtype).mul_(_VALUES / (_VALUES - dropped))
