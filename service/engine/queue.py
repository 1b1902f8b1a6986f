"""The batching policy, pure: no clock, no threads, no input or output.

Texts of one batch are padded to the longest, so a batch costs its longest length times its count. The oldest entry
always leads the next batch, so nothing starves; entries of its kind and of similar length join it within the limits.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["BatchQueue", "Entry", "Limits", "QueueFull"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of the queue and of a batch; times in seconds."""

    max_batch_items: int
    max_batch_tokens: int
    """Longest length times count. A single longer entry still runs, alone."""
    max_delay: float
    """How long the oldest entry waits for company; 0 takes what there is."""
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

    def next_batch(self, room: int | None = None) -> list[Entry[T]]:
        """Takes out the next batch, at most `room` entries, the oldest first; empty where nothing waits."""
        most = self.limits.max_batch_items if room is None else min(room, self.limits.max_batch_items)
        if not self._entries or most < 1:
            return []
        lead = self._entries[0]
        company = [entry for entry in self._entries[1:] if entry.operation == lead.operation]
        company.sort(key=lambda entry: abs(entry.length - lead.length))
        batch, longest = [lead], lead.length
        for entry in company:
            longest = max(longest, entry.length)
            over_tokens = longest * (len(batch) + 1) > self.limits.max_batch_tokens
            if over_tokens or len(batch) == most:
                break
            batch.append(entry)
        self.remove(batch)
        return batch
