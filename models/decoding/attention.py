"""The attention of hypotheses to their source, kept while a search goes on.

Shapes: `K` hypotheses of a sentence, `S` source tokens, `T` steps so far, `C` source tokens that are kept of a step.
"""

from dataclasses import dataclass

import numpy as np

from models.backend import Array

__all__ = ["Attention", "AttentionTrace", "strongest"]

_KEPT = 8
"""Source tokens with the largest weights that are kept of each step: `C`."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of each step of one hypothesis, from the one that reads the start token on."""

    positions: Array
    """Source tokens with the largest weights, in no order: `[T, C]`."""
    weights: Array
    """Their weights in [0, 1]: `[T, C]`."""


def strongest(attention: Array) -> Attention:
    """Return the positions and weights that are kept of attention `[T, S]`."""
    count = min(_KEPT, attention.shape[1])
    positions = np.argpartition(-attention, count - 1, axis=1)[:, :count]
    return Attention(positions.astype(np.int32), np.take_along_axis(attention, positions, 1).astype(np.float32))


class AttentionTrace:
    """The attention of a sentence's hypotheses, step by step, with the hypothesis that each of them extends."""

    BYTES = 8 * _KEPT + 8 + 32
    """Upper bound of the memory that a step takes for each hypothesis."""

    def __init__(self) -> None:
        self._steps: list[Attention] = []
        self._origins: list[Array] = []

    def read(self, attention: Array) -> None:
        """Add a step's attention `[K, S]`, or `[1, S]` of the first step."""
        self._steps.append(strongest(attention))

    def follow(self, origins: Array) -> None:
        """Add the index of the hypothesis that each one extends after the step: `[K]`."""
        self._origins.append(origins.copy())

    def path(self, hypothesis: int) -> Attention:
        """Return the attention of the hypothesis with this index, before or after the step's continuation."""
        chosen, steps = hypothesis, []
        for step in range(len(self._steps) - 1, -1, -1):
            if step < len(self._origins):
                chosen = int(self._origins[step][chosen])
            steps.append((self._steps[step].positions[chosen], self._steps[step].weights[chosen]))
        steps.reverse()
        return Attention(np.array([each for each, _ in steps]), np.array([each for _, each in steps]))
