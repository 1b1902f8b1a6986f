"""Keys and values of the paths of texts that go on by a token at a time, a row for each, as a graph reads them.

The rows stay where they are from one step to the next, so that a step copies the keys and values of new tokens alone.

Shapes: `B` texts, `R` rows, `C` tokens that a row has room for, `L` layers, `G` key-value heads, `s` head size.
"""

from collections.abc import Sequence

import numpy as np

from models.backend import Array
from models.decoding.read_paths import Path

__all__ = ["PathRows"]

_TOKENS = 32
"""The room of rows is a multiple of so many tokens, if there is memory for it."""
_SPARE = 4
"""Rows that have so many times the room that is needed are made anew."""


class PathRows:
    """Memory for the paths of several texts. It is to be used by one thread at a time."""

    def __init__(self, layers: int, heads: int, head_size: int) -> None:
        self._keys_values = np.zeros((layers, 2, 0, heads, 0, head_size), np.float32)
        self._held: list[tuple[tuple[int, int], ...]] = []
        """Numbers of the segments that a row holds, and how many tokens of each."""

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self._keys_values.nbytes

    def hold(self, paths: Sequence[Path], most_tokens: int) -> tuple[list[int], Array]:
        """Return the row of each path among the first `B`, and keys and values of these, `[L, 2, B, G, C, s]`.

        Numbers behind the end of a path in its row have no meaning. All rows have room for `most_tokens` at most, or
        for as many as there are paths, each as long as the longest.
        """
        self._make_room(len(paths), max(map(len, paths)), most_tokens)
        rows = self._rows(paths)
        for row, path in zip(rows, paths, strict=True):
            pieces = _numbered(path)
            self._copy(path, row, _known(self._held[row], pieces))
            self._held[row] = pieces
        return rows, self._keys_values[:, :, : len(paths)]

    def _make_room(self, count: int, longest: int, most_tokens: int) -> None:
        layers, two, rows, heads, room, size = self._keys_values.shape
        if count <= rows and longest <= room and rows * room <= _SPARE * count * (longest + _TOKENS):
            return
        room = max(longest, min(_TOKENS * -(-longest // _TOKENS), most_tokens // count))
        old, kept = self._keys_values, min(rows, count)
        self._keys_values = np.zeros((layers, two, count, heads, room, size), np.float32)
        if room >= old.shape[4]:
            self._keys_values[:, :, :kept, :, : old.shape[4]] = old[:, :, :kept]
        else:
            kept = 0
        self._held = [*self._held[:kept], *[()] * (count - kept)]

    def _rows(self, paths: Sequence[Path]) -> list[int]:
        """Return the row of each path: one that holds its beginning, or any other."""
        ends = {held[-1][0]: row for row, held in enumerate(self._held[: len(paths)]) if held}
        free, rows = set(range(len(paths))), []
        for path in paths:
            numbers = [segment.number for segment, _ in path.pieces[-2:]]  # the last may be new
            row = next((ends[number] for number in reversed(numbers) if number in ends), -1)
            rows.append(row if row in free else -1)
            free.discard(row)
        return [free.pop() if row < 0 else row for row in rows]

    def _copy(self, path: Path, row: int, known: int) -> None:
        """Copy keys and values of a path to a row, which has those of the first `known` tokens."""
        start = 0
        for segment, count in path.pieces:
            if (first := max(0, known - start)) < count:
                part = self._keys_values[:, :, row, :, start + first : start + count]
                part[...] = segment.keys_values[..., first:count, :]
            start += count


def _numbered(path: Path) -> tuple[tuple[int, int], ...]:
    return tuple((segment.number, count) for segment, count in path.pieces)


def _known(held: Sequence[tuple[int, int]], pieces: Sequence[tuple[int, int]]) -> int:
    """Return the number of tokens that two paths have in common."""
    known = 0
    for (number, count), (other, needed) in zip(held, pieces, strict=False):
        if number != other:
            break
        known += min(count, needed)
        if count != needed:
            break
    return known
