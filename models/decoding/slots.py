"""The slots of the caches: where each hypothesis writes its keys and values, and which of them it may read.

Shapes: `B` sentences, `K` hypotheses a sentence, `M` slots of the caches.
"""

import numpy as np

from models.backend import Array

__all__ = ["Slots"]

_FIRST = 16
"""Steps that new caches hold, if the hypotheses of a beam share their past."""
_GROWTH = 3 / 2
"""Caches grow by this factor when they are full; attention reads every slot, used or not."""


class Slots:
    """The slots of some sentences.

    A hypothesis sees those that it descends from. Slots that no hypothesis of their sentence sees are written again:
    hypotheses share most of their past, so that a beam needs few more slots than its longest hypothesis has tokens.
    """

    def __init__(self, beam_size: int, *, reused: bool = True) -> None:
        """Without `reused`, for graphs without the input `slots`, step t writes the slots `K t` to `K t + K - 1`."""
        self._beam = beam_size
        self._consecutive = beam_size == 1 or not reused
        self._first = _FIRST * beam_size if self._consecutive else _rounded(_FIRST + 2 * beam_size)
        self.visible = np.zeros((0, beam_size, self._first), bool)
        """Whether a hypothesis sees a slot: `[B, K, M]`."""
        self.positions = np.zeros((0, self._first), np.int64)
        """Position of the token whose keys and values a slot holds: `[B, M]`."""

    @property
    def count(self) -> int:
        """Number of slots of a sentence, `M`."""
        return self.visible.shape[2]

    def wanted(self, deepest: int, longest: int) -> int:
        """Return the number of slots to have in the next step, after `deepest` tokens of at most `longest`."""
        used = deepest * self._beam if self._consecutive else int(self.visible.any(axis=1).sum(axis=1).max())
        if used + self._beam > self.count:
            return min(max(_rounded(int(_GROWTH * self.count)), used + self._beam), (longest + 1) * self._beam)
        return self.count

    def enough(self, deepest: int) -> int:
        """Return a number of slots that is not much larger than needed for sentences of `deepest` tokens."""
        highest = deepest * self._beam
        if not self._consecutive:
            seen = np.flatnonzero(self.visible.any(axis=(0, 1)))
            highest = int(seen[-1]) + 1 if len(seen) else 0
        return max(self._first, _rounded(highest + 2 * self._beam))

    def take(self, lengths: Array, reading: int) -> Array:
        """Return the slots that the first `reading` hypotheses write next, `[B, reading]`, which each then sees."""
        rows, hypotheses = np.arange(len(lengths))[:, None], np.arange(reading)
        if self._consecutive:
            taken = lengths[:, None] * reading + hypotheses
        else:
            taken = np.argsort(self.visible.any(axis=1), axis=1, kind="stable")[:, :reading]
        self.visible[rows, hypotheses, taken] = True
        self.positions[rows, taken] = lengths[:, None]
        return taken

    def resize(self, rows: int, count: int) -> None:
        """Have other numbers of sentences and slots; what remains of both stays as it is."""
        kept, common = min(rows, len(self.visible)), min(count, self.count)
        visible = np.zeros((rows, self._beam, count), bool)
        visible[:kept, :, :common] = self.visible[:kept, :, :common]
        positions = np.zeros((rows, count), np.int64)
        positions[:kept, :common] = self.positions[:kept, :common]
        self.visible, self.positions = visible, positions

    def keep(self, rows: Array) -> None:
        """Keep the sentences with these indices."""
        self.visible, self.positions = self.visible[rows], self.positions[rows]

    def follow(self, origins: Array) -> None:
        """Let each hypothesis see what the one at index `origins` `[B, K]` saw."""
        if self._beam > 1:
            self.visible = self.visible[np.arange(len(origins))[:, None], origins]


def _rounded(count: int) -> int:
    return -(-count // 8) * 8
