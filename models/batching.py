"""Splits inputs into the batches that cost least together. Pure: lengths in, batches out.

The inputs of a batch are padded to the longest, so a batch costs `fixed + longest * count` tokens. A cost for each
input would be the same in every split and does not count.
"""

from collections.abc import Sequence

__all__ = ["split"]

_FEWER_BATCHES = 1e-6
"""Cost of a batch, in tokens, that decides between splits of the same cost."""


def split(lengths: Sequence[int], *, fixed: float, max_items: int, max_tokens: int) -> list[int]:
    """Return the end of each batch of the cheapest split of `lengths`, which descend.

    Batches are contiguous: the first one holds `lengths[: ends[0]]`, the last end is `len(lengths)`. A batch has at
    most `max_items` inputs and, padded, `max_tokens` tokens; a single longer input still has a batch, alone. The split
    is exact for all arguments, and takes time linear in the number of lengths.
    """
    starts, ends, end = _starts(lengths, fixed, max_items, max_tokens), [], len(lengths)
    while end:
        ends.append(end)
        end = starts[end]
    return ends[::-1]


def _starts(lengths: Sequence[int], fixed: float, max_items: int, max_tokens: int) -> list[int]:
    """Return where the last batch begins in the cheapest split of the first `end` lengths, for each `end`.

    With a last batch that begins at `start` they cost `base(start) + lengths[start] * end`, where `base(start)` is
    `cost of the first start lengths + fixed - lengths[start] * start`: a line in `end`, up to the largest end that the
    limits allow. A later start has a smaller slope and a later largest end, so once it is cheaper than an earlier one
    it stays cheaper. Only some starts are ever the cheapest; each from an end on at which the next one takes over.
    They form a queue, which each start enters and leaves at most once.
    """
    fixed, room, cost, previous = fixed + _FEWER_BATCHES, 1, 0.0, -1
    # The starts of the queue: from which end they are the cheapest, their largest end, base, length and position.
    queue: list[tuple[int, int, float, int, int]] = []
    since, last, base, longest = 0, 0, 0.0, 0  # the last of the queue
    starts, cheapest, cheapest_base, cheapest_length = [0], 0, 0.0, 0
    following = 0  # index in the queue of the start that takes over from the cheapest one
    for start, length in enumerate(lengths):
        if length != previous:
            room, previous = (min(max_items, max_tokens // length) or 1) if length else max_items, length
        own, end = cost + fixed - length * start, start + 1
        takes_over = end
        while queue:
            if own <= base:
                takes_over = end
            else:
                takes_over = last + 1
                if length < longest and (crossing := int((own - base) / (longest - length)) + 1) < takes_over:
                    takes_over = crossing if crossing > end else end
            if since <= start or since < takes_over:
                break
            queue.pop()
            since, last, base, longest, _ = queue[-1]
        if takes_over <= len(lengths):
            since, last, base, longest = takes_over, start + room, own, length
            queue.append((since, last, base, longest, start))
        while following < len(queue) and queue[following][0] <= end:
            _, _, cheapest_base, cheapest_length, cheapest = queue[following]
            following += 1
        cost = cheapest_base + cheapest_length * end
        starts.append(cheapest)
    return starts
