"""Shared-prefix batching: a prefix that several texts share is computed once.

All are cut at the same places. Between two cuts, those that were the same so far, and are so up to the second, are one
row, which goes on from the state of its row before.

Shapes: `B` sequences, `C` places where they could be cut.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Window", "windows"]

_RUN_COST = 8
"""Fixed cost of a model run, in positions; measured on the bundled model."""


@dataclass(frozen=True, slots=True)
class Window:
    """The positions between two cuts, of all sequences that are long enough."""

    rows: list[tuple[int, ...]]
    """Tokens of each distinct row; the last one is a target only."""
    parents: list[int]
    """The row of the window before that each continues from; the root in the first window."""
    places: dict[int, int]
    """The row of each sequence, by its index."""


def windows(sequences: Sequence[tuple[int, ...]], roots: Sequence[int], steps: int) -> Iterator[Window]:
    """Yield windows of at most `steps` positions that cover all sequences, each of two tokens or more.

    `roots` says where each sequence continues from; only sequences of one root share a prefix.
    A sequence of `n` tokens has `n - 1` positions: each but the last is read, each but the first is a target. Rows come
    in the order of their first sequences.
    """
    places = dict(enumerate(roots))
    for start, stop in itertools.pairwise(_cuts(sequences, roots, steps)):
        rows: dict[tuple[int, tuple[int, ...]], int] = {}
        places = {
            index: rows.setdefault((parent, sequences[index][start : stop + 1]), len(rows))
            for index, parent in places.items()
            if len(sequences[index]) - 1 > start
        }
        yield Window([tokens for _, tokens in rows], [parent for parent, _ in rows], places)


def _cuts(sequences: Sequence[tuple[int, ...]], roots: Sequence[int], steps: int) -> list[int]:
    """Return window boundaries of least cost (dynamic programming over the positions where texts diverge).

    Two texts whose first `n` tokens are the same part at position `n - 1`, which has two targets and is read for each.
    """
    ordered = sorted(zip(roots, sequences, strict=True))
    longest = max(map(len, sequences)) - 1
    common = [0, *itertools.starmap(_common, itertools.pairwise(ordered))]
    parting = [count - 1 for count, (_, tokens) in zip(common, ordered, strict=True) if 1 < count < len(tokens)]
    if sum(parting) <= _RUN_COST:
        return [*range(0, longest, steps), longest]
    starts = sorted({0, *parting, longest})
    lengths, shared = np.array([len(tokens) - 1 for _, tokens in ordered]), np.array(common)
    costs, before = [0], [0]
    for end in range(1, len(starts)):
        first, stop = max(0, end - steps), starts[end]
        distinct = np.minimum(stop, lengths)[shared <= np.minimum(stop, lengths)]
        candidates = np.array(starts[first:end])
        positions = np.maximum(0, distinct - candidates[:, None]).sum(axis=1)  # [C, B] -> [C]
        runs = -((candidates - stop) // steps)
        totals = np.array(costs[first:]) + positions + _RUN_COST * runs
        costs.append(int(totals.min()))
        before.append(first + int(totals.argmin()))
    cuts, end = [starts[-1]], len(starts) - 1
    while end:
        cuts = [*range(starts[before[end]], starts[end], steps), *cuts]
        end = before[end]
    return cuts


def _common(one: tuple[int, Sequence[int]], other: tuple[int, Sequence[int]]) -> int:
    """Return the length of the common prefix of two roots and sequences."""
    if one[0] != other[0]:
        return 0
    pairs = enumerate(zip(one[1], other[1], strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one[1]), len(other[1])))
