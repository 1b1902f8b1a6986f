"""The batching policy, pure: no clock, no threads, no input or output.

Texts of one batch are padded to the longest, so a batch costs its longest length times its count, and something for
being a batch. The oldest of the most urgent entries leads the next batch, or the oldest of all once it has waited too
long, so that nothing starves. Entries of its kind join it, the most urgent and then those of the closest lengths first,
where padding costs less than another batch would.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["DEFAULT_URGENCY", "BatchQueue", "Entry", "Limits", "QueueFull"]

T = TypeVar("T")

DEFAULT_URGENCY = 3
"""Of requests that say nothing (RFC 9218, section 4.1)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of the queue and of a batch; times in seconds."""

    max_batch_items: int
    max_batch_tokens: int
    """Longest length times count. A single longer entry still runs, alone."""
    batch_cost: int
    """What a batch costs besides its tokens, in tokens: padding that one more entry may cause."""
    max_delay: float
    """How long the oldest entry waits for company; 0 takes what there is."""
    max_overtaken: float
    """How long more urgent entries may go before an entry."""
    max_queue_items: int
    max_queue_tokens: int


@dataclass(eq=False, kw_only=True, slots=True)
class Entry(Generic[T]):
    """One text that waits. Compared by identity."""

    operation: str
    """Only entries of one operation share a batch."""
    length: int
    """Tokens."""
    arrived: float
    deadline: float
    urgency: int = DEFAULT_URGENCY
    """From 0, the most urgent, to 7."""
    payload: T


class QueueFull(Exception):
    """Entries that the queue has no room for; `never` where it would have none even when empty."""

    def __init__(self, *, never: bool, retry_after: float = 0.0) -> None:
        self.never = never
        self.retry_after = retry_after
        """Seconds that what waits takes."""
        super().__init__("the queue is full")


class BatchQueue(Generic[T]):
    """Entries in order of arrival. Not safe to share between threads."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._entries: list[Entry[T]] = []
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tokens(self) -> int:
        """Summed lengths of what waits."""
        return self._tokens

    def push(self, entries: Sequence[Entry[T]]) -> None:
        """Appends all entries of a request, or none and raises `QueueFull`."""
        tokens, limits = sum(entry.length for entry in entries), self.limits
        if len(entries) > limits.max_queue_items or tokens > limits.max_queue_tokens:
            raise QueueFull(never=True)
        if len(self) + len(entries) > limits.max_queue_items or self._tokens + tokens > limits.max_queue_tokens:
            raise QueueFull(never=False)
        self._entries += entries
        self._tokens += tokens

    def remove(self, entries: Collection[Entry[T]]) -> None:
        """Takes out those of the entries that still wait."""
        gone = set(map(id, entries))
        self._entries = [entry for entry in self._entries if id(entry) not in gone]
        self._tokens = sum(entry.length for entry in self._entries)

    def expired(self, now: float) -> list[Entry[T]]:
        """Takes out the entries whose deadline has passed."""
        expired = [entry for entry in self._entries if entry.deadline <= now]
        if expired:
            self.remove(expired)
        return expired

    def ready_at(self) -> float | None:
        """When the next batch may start; None while nothing waits."""
        if not self._entries:
            return None
        oldest, limits = self._entries[0].arrived, self.limits
        full = len(self) >= limits.max_batch_items or self._tokens >= limits.max_batch_tokens
        if full:
            return oldest
        return max(oldest, min(oldest + limits.max_delay, *(entry.deadline for entry in self._entries)))

    def next_batch(self, now: float, room: int | None = None) -> list[Entry[T]]:
        """Takes out the next batch, at most `room` entries, its leader first; empty where nothing waits."""
        limits = self.limits
        most = limits.max_batch_items if room is None else min(room, limits.max_batch_items)
        if not self._entries or most < 1:
            return []
        lead = self._lead(now)
        company = [entry for entry in self._entries if entry is not lead and entry.operation == lead.operation]
        company.sort(key=lambda entry: (entry.urgency, abs(entry.length - lead.length)))
        batch, longest = [lead], lead.length
        for entry in company:
            if len(batch) == most:
                break
            wider = max(longest, entry.length)
            tokens = wider * (len(batch) + 1)
            padding = tokens - longest * len(batch) - entry.length
            if tokens <= limits.max_batch_tokens and padding <= limits.batch_cost:
                batch.append(entry)
                longest = wider
        self.remove(batch)
        return batch

    def _lead(self, now: float) -> Entry[T]:
        oldest = self._entries[0]
        if now - oldest.arrived >= self.limits.max_overtaken:
            return oldest
        return min(self._entries, key=lambda entry: entry.urgency)  # the first of several
