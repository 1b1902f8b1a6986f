"""Splitting inputs into batches of least total cost.

The inputs of a batch are padded to the longest, so that a batch costs `fixed + longest * count`, in tokens. A cost for
each input would be the same in every split.
"""

from collections.abc import Sequence

__all__ = ["split"]

_CUTS = 32
"""Places within a full batch where another one may begin, at least."""
_PADDING = 1 / 8
"""Padding between two places, in fixed costs, beyond which there are more places."""


def split(lengths: Sequence[int], *, fixed: float, max_items: int, max_tokens: int) -> list[int]:
    """Return where each batch ends, for lengths in descending order, so that all batches together cost least.

    A batch has at most `max_items` inputs and, padded, at most `max_tokens` tokens, or a single longer input. Exact for
    batches of up to 63 inputs; in larger ones batches begin only at some places, at least 32 in a full batch.

    Dynamic programming over the places where a batch may end. Among starts of equal cost the last is chosen; as the
    costs satisfy the quadrangle inequality, the best start never moves back from one end to the next.
    """
    cuts, longest, reach = _cuts(lengths, fixed, max_items, max_tokens)
    overhead = fixed + 1e-6  # where it makes no difference, in fewer batches
    costs, starts, earliest = [0.0], [0], 0
    for end in range(1, len(cuts)):
        stop = cuts[end]
        while reach[earliest] < stop and earliest < end - 1:
            earliest += 1
        best, start = costs[end - 1] + longest[end - 1] * (stop - cuts[end - 1]), end - 1
        for first in range(end - 2, earliest - 1, -1):
            cost = costs[first] + longest[first] * (stop - cuts[first])
            if cost < best:
                best, start = cost, first
        costs.append(best + overhead)
        starts.append(start)
        earliest = start
    ends, end = [], len(cuts) - 1
    while end:
        ends.append(cuts[end])
        end = starts[end]
    return ends[::-1]


def _cuts(
    lengths: Sequence[int], fixed: float, max_items: int, max_tokens: int
) -> tuple[list[int], list[int], list[int]]:
    """Return the places where batches may begin or end, the length there, and how far a batch from there reaches.

    Between two places inputs are so similar in length that they cost little padding.
    """
    cuts, longest, reach = [], [], []
    place = 0
    while place < len(lengths):
        length = lengths[place]
        full = max(1, min(max_items, max_tokens // max(1, length)))
        cuts.append(place)
        longest.append(length)
        reach.append(place + full)
        step = min(max(1, full // _CUTS), len(lengths) - place)
        while step > 1 and (length - lengths[place + step - 1]) * step > _PADDING * fixed:
            step //= 2
        place += step
    return [*cuts, len(lengths)], longest, reach
