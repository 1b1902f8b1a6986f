"""Margins of cosines, which make the loss demand more of the target than of other classes.

In the loss, the cosine of the target's angle theta is replaced by

    cos(theta + angular) - cosine

with an additive angular margin (Deng et al. 2019, ArcFace) and an additive cosine margin (Wang et al. 2018, CosFace).
Probabilities have no margin.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Margin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Reduce the cosine of a target; raises `ValueError` for margins out of range."""

    angular: float = 0.0
    """Radians, at least 0 and below pi / 2."""
    cosine: float = 0.0
    """At least 0 and below 2."""

    def __post_init__(self) -> None:
        if not 0 <= self.angular < math.pi / 2:
            raise ValueError(f"angular_margin must lie in [0, pi / 2), in radians, not {self.angular!r}")
        if not 0 <= self.cosine < 2:
            raise ValueError(f"cosine_margin must lie in [0, 2), not {self.cosine!r}")

    def __bool__(self) -> bool:
        return self.angular > 0 or self.cosine > 0

    def __call__(self, cosine: Tensor) -> Tensor:
        """Return the reduced cosines: `[...]` -> `[...]`.

        Behind the angle `pi - angular`, where `cos(theta + angular)` would increase again, it goes on with the slope of
        the cosine, and without the jump of the authors' program.
        """
        if not self.angular:
            return cosine - self.cosine
        # The floor keeps the root's slope finite at the angles 0 and pi.
        sine = (1 - cosine.square()).clamp_min(torch.finfo(cosine.dtype).eps).sqrt()
        moved = cosine * math.cos(self.angular) - sine * math.sin(self.angular)
        behind = cosine + (math.cos(self.angular) - 1)
        return torch.where(cosine > -math.cos(self.angular), moved, behind) - self.cosine
