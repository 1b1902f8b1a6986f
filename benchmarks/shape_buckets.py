"""Choose the few shapes that batches are padded to on a device that is slow at shapes it has not computed before.

A batch of `n` texts, the longest of `l` tokens, is computed as the first bucket of at least `n` texts and `l` tokens.
The buckets are chosen by the cost of a batch, as measured on the device, and by the shapes that batches had: few
buckets, so that all of them can be warmed up, at the least expected cost of padding. Pure: no clock, no device.
"""

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Buckets", "Shape", "choose", "powers_of_two"]

Shape = tuple[int, int]
"""Texts of a batch and tokens of the longest."""
Seconds = Callable[[int, int], float]
"""The time that a batch of a shape takes."""

_CANDIDATES = 24
"""Numbers of texts, and lengths, that are tried as sizes of buckets: more are thinned out."""


@dataclass(frozen=True)
class Buckets:
    """Shapes in rows: each row has a number of texts and its own lengths, both ascending."""

    rows: Sequence[tuple[int, Sequence[int]]]

    def __len__(self) -> int:
        return sum(len(lengths) for _, lengths in self.rows)

    def __iter__(self) -> Iterator[Shape]:
        return ((items, length) for items, lengths in self.rows for length in lengths)

    def of(self, items: int, longest: int) -> Shape:
        """Return the bucket of a batch; raises `ValueError` for one that is larger than all."""
        row = bisect.bisect_left(self.rows, items, key=lambda row: row[0])
        if row == len(self.rows) or longest > self.rows[row][1][-1]:
            raise ValueError(f"no bucket holds {items} texts of {longest} tokens")
        count, lengths = self.rows[row]
        return count, lengths[bisect.bisect_left(lengths, longest)]


def powers_of_two(max_items: int, max_length: int) -> Buckets:
    """Return the buckets that are used without a measurement."""
    lengths = _powers(max_length)
    return Buckets([(items, lengths) for items in _powers(max_items)])


def _powers(largest: int) -> list[int]:
    return [*(1 << power for power in range((largest - 1).bit_length())), largest]


def choose(shapes: Mapping[Shape, float], seconds: Seconds, *, max_items: int, max_length: int, most: int) -> Buckets:
    """Return at most `most` buckets, of which one holds every batch up to `max_items` texts and `max_length` tokens.

    `shapes` are those that batches had, with their frequencies. The total time of these batches is least among all
    rows of buckets, where numbers of texts and lengths are among those of the shapes; of many different ones, some are
    tried. Raises `ValueError` where there are no shapes, or no buckets are allowed.

    Two programs, one in the other. A row that holds the batches of an interval of numbers of texts is padded to the
    last of them, and intervals of lengths are padded to their last in the same way: the least cost of the first so many
    lengths with so many buckets follows from that of fewer lengths with one bucket less. Then the least cost of the
    first so many numbers of texts with so many buckets follows from that of fewer, and one row with the other buckets.
    """
    if not shapes or most < 1:
        raise ValueError("shapes and at least one bucket are needed")
    counts = _candidates((items for items, _ in shapes), max_items)
    lengths = _candidates((length for _, length in shapes), max_length)
    weights = np.zeros((len(counts), len(lengths)))
    for (items, length), weight in shapes.items():
        weights[bisect.bisect_left(counts, items), bisect.bisect_left(lengths, length)] += weight
    cost = np.array([[seconds(items, length) for length in lengths] for items in counts])
    # least[k][end]: of the first `end` numbers of texts with k buckets, and the last row: its start and lengths.
    least: list[list[tuple[float, int, list[int]]]] = [[(math.inf, 0, [])] * (len(counts) + 1) for _ in range(most + 1)]
    least[0][0] = (0.0, 0, [])
    for end in range(1, len(counts) + 1):
        for start in range(end):
            row = _row(weights[start:end].sum(axis=0), cost[end - 1], most)
            for used, (row_cost, chosen) in enumerate(row, start=1):
                for before in range(most + 1 - used):
                    total = least[before][start][0] + row_cost
                    if total < least[before + used][end][0]:
                        least[before + used][end] = total, start, chosen
    number = min(range(1, most + 1), key=lambda number: least[number][-1][0])
    rows, end = [], len(counts)
    while end:
        _, start, chosen = least[number][end]
        rows.append((counts[end - 1], [lengths[index] for index in chosen]))
        number, end = number - len(chosen), start
    return Buckets(rows[::-1])


def _row(weights: NDArray[Any], cost: NDArray[Any], most: int) -> list[tuple[float, list[int]]]:
    """Return the least cost with 1, 2, ... buckets of lengths, and the indices of their lengths."""
    number = len(weights)
    before = np.concatenate([[0.0], np.cumsum(weights)])
    # segments[start, last]: the cost of the batches of these lengths, padded to the last of them.
    segments = (before[None, 1:] - before[:-1, None]) * cost
    segments[np.tril_indices(number, -1)] = np.inf
    totals, starts = [segments[0]], [np.zeros(number, np.int64)]
    for _ in range(1, min(most, number)):
        extended = np.concatenate([[np.inf], totals[-1][:-1]])[:, None] + segments
        starts.append(extended.argmin(axis=0))
        totals.append(extended.min(axis=0))
    found = []
    for used, total in enumerate(totals, start=1):
        chosen, last = [], number - 1
        for level in reversed(range(used)):
            chosen.append(last)
            last = int(starts[level][last]) - 1
        found.append((float(total[-1]), chosen[::-1]))
    return found


def _candidates(values: Iterable[int], largest: int) -> list[int]:
    """Return ascending values up to the largest, which is one of them; of many values, equally spaced ones by rank."""
    found = sorted({*(value for value in values if value < largest), largest})
    if len(found) <= _CANDIDATES:
        return found
    return sorted({found[round(rank * (len(found) - 1) / (_CANDIDATES - 1))] for rank in range(_CANDIDATES)})
