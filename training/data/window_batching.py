"""Windows of token ids for causal language models: texts that are cut where they are long, one or several a window.

Shapes: `B` windows, `T` tokens.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.batching import IGNORED, ExampleBatch, LengthBatches
from training.data.mapped_tokens import MappedTokens

__all__ = ["EncodedTexts", "WindowBatch", "WindowBatches", "best_fit", "pieces"]


def pieces(tokens: Sequence[int], longest: int) -> list[Sequence[int]]:
    """Return a text in pieces of `longest` tokens, the last of which may be shorter."""
    return [tokens[first : first + longest] for first in range(0, len(tokens), longest)]


class EncodedTexts:
    """The tokens of texts, each with the end behind it, in pieces that are read after the start each."""

    def __init__(
        self,
        texts: Iterable[tuple[Sequence[int], int]],
        *,
        end_id: int,
        longest: int,
        start_id: int | None = None,
    ) -> None:
        """`texts` are the ids of each text without the end, and its number of bytes.

        `longest` is the length of a piece in tokens, the end included. `start_id` is the token before each piece, the
        end by default. Raises `ValueError` if there is no text.
        """
        sizes: list[int] = []
        owners: list[int] = []

        def cut() -> Iterator[Sequence[int]]:
            for ids, size in texts:
                found = pieces([*ids, end_id], longest)
                owners.extend([len(sizes)] * len(found))
                sizes.append(size)
                yield from found

        self.pieces = MappedTokens(cut())
        """The target tokens of each piece."""
        if not sizes:
            raise ValueError("texts: there is none")
        self.owners: NDArray[np.int64] = np.array(owners)
        """The number of each piece's text."""
        self.sizes: NDArray[np.int64] = np.array(sizes)
        """Bytes of each text."""
        self.end_id = end_id
        """The token after each text."""
        self.start_id = end_id if start_id is None else start_id
        """The token before each piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowBatch(ExampleBatch):
    """Windows of similar lengths; the targets are `[B, T]`, `IGNORED` where padded."""

    inputs: Tensor
    """`[B, T]`"""
    places: Tensor | None = None
    """`[B, T]`: the position of each token in its piece; None where each window is a piece."""
    texts: Tensor | None = None
    """`[B, T]`: the number of each token's piece in its window, -1 where padded; None where each window is a piece."""


class WindowBatches(LengthBatches[WindowBatch]):
    """Windows of similar lengths together. A piece `w1 .. wn` has the inputs `<s> w1 .. w(n-1)` and itself as targets.

    The index of a window is that of its piece where each is one.
    """

    def __init__(
        self,
        encoded: EncodedTexts,
        *,
        batch_tokens: int,
        window: int | None = None,
        seed: int | None = None,
    ) -> None:
        """With `window`, a number of tokens, pieces share windows, no longer than that, by `best_fit`.

        The order is by length where there is no `seed`.
        """
        self.encoded = encoded
        lengths = np.fromiter(map(len, encoded.pieces), np.int32, len(encoded.pieces))
        self._windows = None if window is None else best_fit(lengths.tolist(), window, seed or 0)
        if self._windows is not None:
            lengths = np.array([sum(lengths[index] for index in own) for own in self._windows], np.int32)
        super().__init__("windows", lengths[:, None], batch_tokens=batch_tokens, seed=seed)

    def collate(self, indices: list[int]) -> WindowBatch:
        windows = [[index] if self._windows is None else self._windows[index] for index in indices]
        rows = [[self.encoded.pieces[piece] for piece in window] for window in windows]
        steps = max(sum(map(len, row)) for row in rows)
        inputs = torch.full((len(rows), steps), self.encoded.start_id)
        targets = torch.full((len(rows), steps), IGNORED)
        places, texts = torch.zeros_like(inputs), torch.full_like(inputs, -1)
        for row, window in enumerate(rows):
            first = 0
            for number, piece in enumerate(window):
                ids, own = torch.tensor(piece, dtype=torch.long), slice(first, first + len(piece))
                targets[row, own] = ids
                inputs[row, own][1:] = ids[:-1]
                places[row, own] = torch.arange(len(piece))
                texts[row, own] = number
                first += len(piece)
        shared = self._windows is not None
        return WindowBatch(
            inputs=inputs,
            targets=targets,
            indices=torch.tensor(indices),
            places=places if shared else None,
            texts=texts if shared else None,
        )


def best_fit(lengths: Sequence[int], window: int, seed: int) -> list[list[int]]:
    """Return the indices of pieces that share a window, for all windows (Ding et al. 2024, best-fit-decreasing).

    Pieces, longest first, go where the least room is left that is enough; `seed` shuffles those of equal lengths.
    Raises `ValueError` for a piece that is longer than a window.
    """
    if (longest := max(lengths, default=0)) > window:
        raise ValueError(f"a piece has {longest} tokens, a window {window}")
    order = list(range(len(lengths)))
    random.Random(seed).shuffle(order)
    order.sort(key=lambda index: -lengths[index])
    windows: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(window + 1)]  # windows by the tokens that fit in
    rooms = 0  # bit r is set where a window has room for r tokens
    for index in order:
        length = lengths[index]
        if enough := rooms >> length:
            room = length + (enough & -enough).bit_length() - 1
            number = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
        else:
            room, number = window, len(windows)
            windows.append([])
        windows[number].append(index)
        if left := room - length:
            with_room[left].append(number)
            rooms |= 1 << left
    return windows
