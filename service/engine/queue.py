"""The batching policy, pure: no clock, no threads, no input or output.

Texts of one batch are padded to the longest, so a batch costs its longest length times its count, and a fixed
cost. The oldest of the most urgent entries is the head of the next batch, or the oldest of all once it has waited for
the starvation limit. All waiting entries are split into the batches that cost least together, of which the one
that holds the head of the line runs.
"""

import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from models.batching import split

__all__ = ["DEFAULT_URGENCY", "BatchQueue", "Entry", "Limits", "QueueFull"]

T = TypeVar("T")

DEFAULT_URGENCY = 3
"""Urgency of requests that state none (RFC 9218, section 4.1)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of the queue and of a batch; times in seconds."""

    max_batch_items: int
    max_batch_tokens: int
    """Longest length times count. A single longer entry still runs, alone."""
    batch_cost: float
    """Fixed cost of a batch in addition to its tokens, in tokens."""
    max_delay: float
    """Longest time that the oldest entry waits for other entries to fill its batch; 0 starts at once."""
    starvation_limit: float
    """Longest time for which more urgent entries may overtake an entry."""
    max_wait: float
    """Longest expected wait with which a request is admitted, in addition to its own deadline; infinite for none."""
    max_queue_items: int
    max_queue_tokens: int


@dataclass(eq=False, kw_only=True, slots=True)
class Entry(Generic[T]):
    """An input that waits in the queue. Compared by identity."""

    operation: str
    """Only entries of one operation share a batch."""
    length: int
    """Tokens."""
    cost: float = 0.0
    """Expected work of computing and answering the entry, in a unit that all entries of the queue share."""
    arrived: float
    deadline: float
    urgency: int = DEFAULT_URGENCY
    """RFC 9218 urgency: 0 is the most urgent, 7 the least."""
    payload: T


class QueueFull(Exception):
    """Entries that the queue has no room for; `never` where it would have none even when empty."""

    def __init__(self, *, never: bool, retry_after: float = 0.0) -> None:
        self.never = never
        self.retry_after = retry_after
        """Seconds in which the waiting entries are expected to be computed."""
        super().__init__("the queue is full")


class BatchQueue(Generic[T]):
    """Entries in order of arrival. Not safe to share between threads."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._entries: list[Entry[T]] = []
        self._tokens, self._cost = 0, 0.0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tokens(self) -> int:
        """Summed lengths of the waiting entries, in tokens."""
        return self._tokens

    @property
    def cost(self) -> float:
        """Summed costs of the waiting entries."""
        return self._cost

    def push(self, entries: Sequence[Entry[T]]) -> None:
        """Append all entries of a request, or none and raise `QueueFull`."""
        tokens, limits = sum(entry.length for entry in entries), self.limits
        if len(entries) > limits.max_queue_items or tokens > limits.max_queue_tokens:
            raise QueueFull(never=True)
        if len(self) + len(entries) > limits.max_queue_items or self._tokens + tokens > limits.max_queue_tokens:
            raise QueueFull(never=False)
        self._entries += entries
        self._tokens += tokens
        self._cost += sum(entry.cost for entry in entries)

    def remove(self, entries: Collection[Entry[T]]) -> None:
        """Remove the entries, as far as they still wait."""
        gone = set(entries).intersection(self._entries)
        self._entries = [entry for entry in self._entries if entry not in gone]
        self._tokens -= sum(entry.length for entry in gone)
        self._cost = self._cost - sum(entry.cost for entry in gone) if self._entries else 0.0

    def expired(self, now: float) -> list[Entry[T]]:
        """Remove and return the entries whose deadline has passed."""
        expired = [entry for entry in self._entries if entry.deadline <= now]
        if expired:
            self.remove(expired)
        return expired

    def ready_at(self) -> float | None:
        """Return when the next batch may start; None for an empty queue."""
        if not self._entries:
            return None
        oldest, limits = self._entries[0].arrived, self.limits
        # At half of the time that an entry has, so that the rest is left to compute it.
        soonest = min((entry.arrived + entry.deadline) / 2 for entry in self._entries)
        full = len(self) >= limits.max_batch_items or self._tokens >= limits.max_batch_tokens
        if full:
            return oldest
        return max(oldest, min(oldest + limits.max_delay, soonest))

    def next_batch(self, now: float) -> list[Entry[T]]:
        """Remove and return the next batch, its head first; empty for an empty queue."""
        if not self._entries:
            return []
        head, limits = self.head(now), self.limits
        others = [entry for entry in self._entries if entry is not head and entry.operation == head.operation]
        batch = _cheapest_with(head, [entry for entry in others if entry.urgency == head.urgency], limits)
        if any(entry.urgency != head.urgency for entry in others):  # these backfill the batch
            others.sort(key=lambda entry: (entry.urgency, abs(entry.length - head.length)))
            _fill(batch, (entry for entry in others if entry.urgency != head.urgency), limits)
        self.remove(batch)
        return batch

    def next_joining(
        self, now: float, room: int, fits: Callable[[Sequence[Entry[T]]], bool] = lambda batch: True
    ) -> list[Entry[T]]:
        """Remove and return at most `room` entries to join a running batch, by urgency and then similarity of length.

        They are padded only once, so their padding does not count. Only entries join that `fits` accepts
        together. A head that it does not accept is overtaken by others until it has waited for `starvation_limit`.
        """
        if not self._entries or room < 1:
            return []
        head = self.head(now)
        if not fits([head]):
            if now - head.arrived >= self.limits.starvation_limit:
                return []
            others = sorted((entry for entry in self._entries if entry is not head), key=lambda entry: entry.urgency)
            fitting = next((entry for entry in others[:_BACKFILLED] if fits([entry])), None)
            if fitting is None:
                return []
            head = fitting
        candidates = [entry for entry in self._entries if entry is not head and entry.operation == head.operation]
        candidates.sort(key=lambda entry: (entry.urgency, abs(entry.length - head.length)))
        batch = [head]
        limits = replace(self.limits, max_batch_items=room, batch_cost=self.limits.max_batch_tokens)
        _fill(batch, candidates, limits, fits)
        self.remove(batch)
        return batch

    def head(self, now: float) -> Entry[T]:
        """Return the head of the line: the oldest of the most urgent, or one that has waited too long."""
        oldest = self._entries[0]
        if now - oldest.arrived >= self.limits.starvation_limit:
            return oldest
        return min(self._entries, key=lambda entry: entry.urgency)  # the first of several


_BACKFILLED = 64
"""Entries that are tried where the head of the line does not fit."""
_CONSIDERED = 4
"""Full batches whose entries are candidates for the next batch."""
_FEW = 64
"""Entries that are candidates however long they are."""
_LENGTH = operator.attrgetter("length")


def _cheapest_with(head: Entry[T], others: Sequence[Entry[T]], limits: Limits) -> list[Entry[T]]:
    """Return the batch that holds the head, where the oldest entries are split into batches that cost least together.

    Candidates are as many of the oldest as fill four batches, which bounds the time and how often they are overtaken.
    """
    most, room = _CONSIDERED * limits.max_batch_items, _CONSIDERED * limits.max_batch_tokens
    lengths = map(_LENGTH, others[:most])
    count = max(_FEW, sum(tokens <= room for tokens in itertools.accumulate(lengths)))
    entries = sorted([head, *others[: min(count, most)]], key=_LENGTH, reverse=True)
    bounds = {"max_items": limits.max_batch_items, "max_tokens": limits.max_batch_tokens}
    ends = split([entry.length for entry in entries], fixed=limits.batch_cost, **bounds)
    place = entries.index(head)
    end = next(end for end in ends if end > place)
    start = max((start for start in ends if start <= place), default=0)
    return [head, *entries[start:place], *entries[place + 1 : end]]


def _fill(
    batch: list[Entry[T]],
    candidates: Iterable[Entry[T]],
    limits: Limits,
    accepts: Callable[[Sequence[Entry[T]]], bool] = lambda batch: True,
) -> None:
    """Add the candidates that fit and that each cause no more padding than a batch costs."""
    longest = max(entry.length for entry in batch)
    for entry in candidates:
        wider, count = max(longest, entry.length), len(batch) + 1
        padding = wider * count - longest * len(batch) - entry.length
        fits = count <= limits.max_batch_items and wider * count <= limits.max_batch_tokens
        if fits and padding <= limits.batch_cost and accepts([*batch, entry]):
            batch.append(entry)
            longest = wider
