"""The batching policy, pure: no clock, no threads, no input or output.

Texts of one batch are padded to the longest, so a batch costs its longest length times its count, and a fixed
cost. The oldest of the most urgent entries is the head of the next batch, or the oldest of all once it has waited for
the starvation limit. All waiting entries are split into the batches that cost least together, of which the one
that holds the head of the line runs.

Where entries of several flows wait, which are those of several API keys, entries of one urgency are ordered by
weighted fair queuing in place of the time of arrival: see `service.engine.fairness`. A flow with a long backlog that
has had its share floods the queue: it goes after the others of its urgency, in short batches, so that these wait for
the end of a short one at most. A full queue drops the newest entries of the flow that fills most of it for entries of
one that fills less.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Generic, TypeVar

from models.batching import split
from service.engine.fairness import SINGLE_FLOW, Backlog, FairClock, Flow, RecentWork, share_of_backlogs
from service.engine.patience import Patience

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
    """Fixed cost of a batch in addition to its tokens, in tokens. The larger, the fuller the batches."""
    max_delay: float
    """Longest time that the oldest entry waits for other entries to fill its batch; 0 starts at once."""
    starvation_limit: float
    """Longest time for which more urgent entries may overtake an entry."""
    max_wait: float
    """Longest expected wait with which a request is admitted, in addition to its own deadline; infinite for none."""
    max_queue_items: int
    max_queue_tokens: int
    batch_seconds: float = 0.0
    """Fixed cost of a batch in seconds, where it is measured. A batch then waits for up to half of it where requests
    are observed to arrive in groups; see `service.engine.patience`."""


@dataclass(eq=False, kw_only=True, slots=True)
class Entry(Generic[T]):
    """An input that waits in the queue. Compared by identity."""

    batch_key: str
    """Only entries of one key share a batch."""
    length: int
    """Tokens."""
    cost: float = 0.0
    """Expected work of computing and answering the entry, in a unit that all entries of the queue share."""
    arrived: float
    deadline: float
    urgency: int = DEFAULT_URGENCY
    """RFC 9218 urgency: 0 is the most urgent, 7 the least."""
    flow: Flow = SINGLE_FLOW
    """Entries of several flows are served in turns, by their weights."""
    payload: T

    @property
    def work(self) -> float:
        """The cost, or the length where no cost is estimated."""
        return self.cost or self.length


class QueueFull(Exception):
    """Entries that the queue has no room for; `never` where it would have none even when empty."""

    def __init__(self, *, never: bool, retry_after: float = 0.0, limits: Limits | None = None) -> None:
        self.never = never
        self.limits = limits
        """The bounds of the queue."""
        self.retry_after = retry_after
        """Seconds in which the waiting entries are expected to be computed."""
        super().__init__("the queue is full")


class BatchQueue(Generic[T]):
    """Entries in order of arrival. Not safe to share between threads. `limits` can be replaced at any time."""

    def __init__(self, limits: Limits, *, served: float | None = None) -> None:
        """`served` is the number of its shares of the recent work from which on a flow has had its share."""
        self.limits = limits
        self._served = _SERVED if served is None else served
        self._entries: dict[Entry[T], None] = {}
        self._tokens, self._cost = 0, 0.0
        self._backlogs: dict[str, Backlog] = {}
        """The waiting entries of each flow."""
        self._numbers = itertools.count()
        self._clocks: dict[tuple[int, bool], FairClock[Entry[T]]] = {}
        """The service of the flows of each urgency, of which `_flooding` ones have a clock of their own."""
        self._recent = RecentWork()
        self._flooding: set[str] = set()
        """The flows with long backlogs that have had their share."""
        self._earliest_deadline = math.inf
        """No later than the earliest deadline of the waiting entries."""
        self._patience = Patience()
        self._computing = 0
        """Batches that have not completed; counted where `completed` is called."""
        self._held: set[str] = set()
        """The batch keys whose entries are not to be computed yet."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tokens(self) -> int:
        """Summed lengths of the waiting entries, in tokens."""
        return self._tokens

    @property
    def cost(self) -> float:
        """Summed costs of the waiting entries."""
        return self._cost if self._entries else 0.0

    @property
    def ready(self) -> bool:
        """Whether there are entries that may be computed."""
        return next(self._ready(), None) is not None

    def cost_before(self, flow: Flow, cost: float = 0.0) -> float:
        """Return the cost of the waiting entries that are expected to be computed before new ones of a flow are.

        `cost` is that of the new ones.
        """
        if len(self._backlogs) < 2 and flow.name in self._backlogs:
            return self.cost
        return share_of_backlogs(self._backlogs, flow, cost)

    def push(self, entries: Sequence[Entry[T]]) -> list[Entry[T]]:
        """Append all entries of a request, or none and raise `QueueFull`; all of them are of one flow.

        Returns the entries of other flows that are dropped for them.
        """
        tokens, limits = sum(entry.length for entry in entries), self.limits
        if len(entries) > limits.max_queue_items or tokens > limits.max_queue_tokens:
            raise QueueFull(never=True, limits=limits)
        dropped: list[Entry[T]] = []
        if len(self) + len(entries) > limits.max_queue_items or self._tokens + tokens > limits.max_queue_tokens:
            dropped = self._dropped_for(entries, tokens)
            self.remove(dropped)
        if entries and self.limits.batch_seconds:
            arrived, computing = entries[0].arrived, self._computing > 0
            self._patience.arrived(arrived, len(entries), len(self), self._window, computing=computing)
        self._entries.update(dict.fromkeys(entries))
        self._tokens += tokens
        cost = sum(entry.cost for entry in entries)
        self._cost += cost
        if entries:
            self._note_arrival(entries, tokens, cost)
        return dropped

    def _note_arrival(self, entries: Sequence[Entry[T]], tokens: int, cost: float) -> None:
        flow = entries[0].flow
        backlog = self._backlogs.get(flow.name)
        if backlog is None:
            backlog = self._backlogs[flow.name] = Backlog(flow.weight)
        backlog.add(len(entries), tokens, cost)
        if flow is not SINGLE_FLOW:
            self._recent.arrived(flow, entries[0].arrived)
        for entry in entries:
            if entry.batch_key not in self._held:
                self._clock_of(entry).add(entry)
            self._earliest_deadline = min(self._earliest_deadline, entry.deadline)

    def hold(self, batch_key: str) -> None:
        """Leave the entries with a batch key in the queue, those that arrive, too, until `resume`."""
        for entry in self._ready():
            if entry.batch_key == batch_key:
                self._clock_of(entry).remove(entry)
        self._held.add(batch_key)

    def resume(self, batch_key: str) -> None:
        """Have entries with a batch key computed again."""
        self._held.discard(batch_key)
        for entry in self._entries:
            if entry.batch_key == batch_key:
                self._clock_of(entry).add(entry)

    def _ready(self) -> Iterator[Entry[T]]:
        """Yield the entries that may be computed, in order of arrival."""
        return (entry for entry in self._entries if entry.batch_key not in self._held)

    def has_room(self, flow: Flow, items: int, others: int = 0) -> bool:
        """Return whether so many entries of a flow would be accepted.

        `others` are entries that are expected in addition, of any flow.
        """
        limits = self.limits
        if len(self) + others + items <= limits.max_queue_items:
            return True
        own = self._backlogs.get(flow.name)
        after = Backlog(flow.weight, items + (own.items if own else 0), own.tokens if own else 0)
        longest = max(map(self._fraction, self._backlogs.values()), default=0.0)
        return longest > self._fraction(after)

    def _dropped_for(self, entries: Sequence[Entry[T]], tokens: int) -> list[Entry[T]]:
        """Return entries of flows with longer backlogs, the newest first, without which new ones have room.

        Raises `QueueFull` where the backlog of the new ones' flow would be the longest.
        """
        limits, flow = self.limits, entries[0].flow
        backlogs = {name: replace(each) for name, each in self._backlogs.items()}
        own = backlogs.setdefault(flow.name, Backlog(flow.weight))
        own.add(len(entries), tokens, 0.0)
        newest = {name: self._newest(name) for name in backlogs}
        items, left = len(self) + len(entries), self._tokens + tokens
        dropped = []
        while items > limits.max_queue_items or left > limits.max_queue_tokens:
            name = max(backlogs, key=lambda name: self._fraction(backlogs[name]))
            if self._fraction(backlogs[name]) <= self._fraction(own):
                raise QueueFull(never=False)
            entry = next(newest[name])
            dropped.append(entry)
            backlogs[name].add(-1, -entry.length, 0.0)
            items, left = items - 1, left - entry.length
        return dropped

    def _newest(self, flow: str) -> Iterator[Entry[T]]:
        return (entry for entry in reversed(self._entries) if entry.flow.name == flow)

    def _fraction(self, backlog: Backlog) -> float:
        return backlog.fraction(self.limits.max_queue_items, self.limits.max_queue_tokens)

    def _clock_of(self, entry: Entry[T]) -> FairClock[Entry[T]]:
        return self._clock(entry.urgency, entry.flow.name in self._flooding)

    def _clock(self, urgency: int, flooding: bool) -> FairClock[Entry[T]]:
        clock = self._clocks.get((urgency, flooding))
        if clock is None:
            clock = self._clocks[urgency, flooding] = FairClock(self._numbers)
        return clock

    def _judge(self, names: Iterable[str]) -> None:
        """Find out which flows flood the queue."""
        for name in names:
            was, flooding = name in self._flooding, self._floods(name)
            if flooding == was:
                continue
            for urgency in {urgency for urgency, _ in self._clocks}:
                self._clock(urgency, was).move(name, self._clock(urgency, flooding))
            self._flooding.symmetric_difference_update([name])

    def _floods(self, name: str) -> bool:
        """Return whether a flow has had its share, while more than a batch of it waits, or did and the rest waits."""
        long = (name in self._flooding and name in self._backlogs) or self._waits_long(name)
        return long and len(self._recent) > 1 and self._recent.shares(name) > self._served

    def _waits_long(self, name: str) -> bool:
        """Return whether more than a batch of a flow waits."""
        backlog = self._backlogs.get(name)
        return backlog is not None and backlog.items > self.limits.max_batch_items

    def floods(self, flow: Flow) -> bool:
        """Return whether a flow has a long backlog and has had its share."""
        return flow.name in self._flooding

    def most_running(self, flow: Flow, cheap: int, *, alone: bool = True) -> int:
        """Return how many entries of a flow may be computed at once where each is computed for long.

        All may where it is `alone`: no others are computed or wait, and none are expected soon after those of a long
        backlog. Otherwise it may have its share of the places, or as many as are `cheap`: that hardly slow down the
        others.
        """
        expected = len(self._recent) > 1 and (self.floods(flow) or self._waits_long(flow.name))
        if alone and len(self._backlogs) < 2 and not expected:
            return self.limits.max_batch_items
        return max(1, cheap, math.floor(self.limits.max_batch_items * self._recent.fraction(flow.name)))

    def completed(self, now: float, batch: Collection[Entry[T]]) -> None:
        """Record that a batch of `next_batch` has been computed, or has failed."""
        self._computing -= 1
        self._patience.completed(now, len(batch), len(self), self._window)

    @property
    def _window(self) -> float:
        """Longest time for which a batch waits for a group of requests, in seconds."""
        return self.limits.batch_seconds / 2

    def remove(self, entries: Collection[Entry[T]]) -> None:
        """Remove the entries, as far as they still wait."""
        for entry in entries:
            if entry in self._entries:
                del self._entries[entry]
                self._tokens -= entry.length
                self._cost -= entry.cost
                if entry.batch_key not in self._held:
                    self._clock_of(entry).remove(entry)
                backlog = self._backlogs[entry.flow.name]
                backlog.add(-1, -entry.length, -entry.cost)
                if not backlog.items:
                    del self._backlogs[entry.flow.name]

    def expired(self, now: float) -> list[Entry[T]]:
        """Remove and return the entries whose deadline has passed."""
        if now < self._earliest_deadline:
            return []
        expired = [entry for entry in self._entries if entry.deadline <= now]
        self.remove(expired)
        self._earliest_deadline = min((entry.deadline for entry in self._entries), default=math.inf)
        return expired

    def ready_at(self) -> float | None:
        """Return when the next batch may start; None for a queue without entries that may be computed."""
        first, limits = next(self._ready(), None), self.limits
        if first is None:
            return None
        oldest = first.arrived
        full = len(self) >= limits.max_batch_items or self._tokens >= limits.max_batch_tokens
        delayed = max(oldest + limits.max_delay, self._patience.until(len(self), self._window))
        if full or delayed <= oldest:
            return oldest
        # At half of the time that an entry has, so that the rest is left to compute it.
        soonest = min((entry.arrived + entry.deadline) / 2 for entry in self._entries)
        return max(oldest, min(delayed, soonest))

    def next_batch(self, now: float) -> list[Entry[T]]:
        """Remove and return the next batch, its head first; empty where no entry may be computed."""
        if not self.ready:
            return []
        head = self._judged_head(now)
        batch = self._batch_with(head) if len(self._entries) > 1 else [head]
        self._take(batch, now)
        self._computing += 1
        return batch

    def _batch_with(self, head: Entry[T]) -> list[Entry[T]]:
        """Return the batch that holds the head of the line."""
        key, clock, limits = head.batch_key, self._clock_of(head), self.limits
        short = self._short(head) if 0 < len(self._flooding) < len(self._recent) else limits
        bounds = short if head.flow.name in self._flooding else limits
        # The first ones, the head among them, so that entries of similar lengths do not overtake others repeatedly. Of
        # several flows only those that would fill the next batch: a flow with a long backlog would fill it otherwise.
        considered = (_CONSIDERED if len(clock) < 2 and bounds is limits else 1) * limits.max_batch_items
        batch = _cheapest_with(head, clock.in_order(key, considered), bounds)
        if len(batch) < limits.max_batch_items and clock.entries < len(self._entries):  # others backfill the batch
            others = (each for each in self._entries if each.batch_key == key and self._clock_of(each) is not clock)
            _fill(batch, self._closest(islice(others, considered), head), short)
        return batch

    def _short(self, head: Entry[T]) -> Limits:
        """Return the limits of batches of flows that flood the queue."""
        most = min(self.limits.max_batch_tokens, max(head.length, _SHORT * self.limits.batch_cost))
        return replace(self.limits, max_batch_tokens=math.floor(most))

    def _take(self, batch: Sequence[Entry[T]], now: float) -> None:
        """Remove entries that are about to be computed, and charge them to their flows."""
        if len(self._backlogs) > 1:
            for clock in self._clocks.values():
                if clock.entries:
                    clock.charge(entry for entry in batch if self._clock_of(entry) is clock)
        self.remove(batch)
        flows = {entry.flow.name for entry in batch if entry.flow is not SINGLE_FLOW}
        if flows:
            self._recent.served(batch, now)
            self._judge(flows)

    def next_joining(
        self, now: float, room: int, fits: Callable[[Sequence[Entry[T]]], bool] = lambda batch: True
    ) -> list[Entry[T]]:
        """Remove and return at most `room` entries to join a running batch, by urgency and then similarity of length.

        They are padded only once, so their padding does not count. Only entries join that `fits` accepts
        together. A head that it does not accept is overtaken by others until it has waited for `starvation_limit`.
        """
        if not self._entries or room < 1:
            return []
        head = self._judged_head(now)
        if not fits([head]):
            if now - head.arrived >= self.limits.starvation_limit:
                return []
            others = sorted((entry for entry in self._entries if entry is not head), key=_URGENCY)
            fitting = next((entry for entry in others[:_BACKFILLED] if fits([entry])), None)
            if fitting is None:
                return []
            head = fitting
        candidates = self._joining(head, _CONSIDERED * room)
        batch = [head]
        limits = replace(self.limits, max_batch_items=room, batch_cost=self.limits.max_batch_tokens)
        _fill(batch, self._closest(candidates, head), limits, fits)
        self._take(batch, now)
        return batch

    def _joining(self, head: Entry[T], most: int) -> Iterable[Entry[T]]:
        """Return the entries that may join with the head: of several flows those whose turn it is, by urgency."""
        if len(self._backlogs) < 2:
            return [entry for entry in self._entries if entry is not head and entry.batch_key == head.batch_key]
        ordered = [
            entry for _, clock in sorted(self._clocks.items()) for entry in clock.in_order(head.batch_key, most + 1)
        ]
        return [entry for entry in ordered if entry is not head][:most]

    def _closest(self, entries: Iterable[Entry[T]], head: Entry[T]) -> list[Entry[T]]:
        """Return the entries by urgency, those of flooding flows last, and then similarity of length."""
        flooding = self._flooding
        return sorted(
            entries, key=lambda each: (each.urgency, each.flow.name in flooding, abs(each.length - head.length))
        )

    def _judged_head(self, now: float) -> Entry[T]:
        """Return the head of the line, where it is known which flows flood the queue."""
        head = self.head(now)
        if not self._flooding and len(self._recent) < 2:
            return head
        self._judge([*self._flooding, head.flow.name])
        return self.head(now)

    def head(self, now: float) -> Entry[T]:
        """Return the head of the line: the first of the most urgent, or one that has waited too long.

        Where several flows wait, their turns hold also for entries that have waited too long.
        """
        if len(self._clocks) == 1:
            (clock,) = self._clocks.values()
            return clock.first()
        firsts: dict[int, Entry[T]] = {}
        for (urgency, _), clock in sorted(self._clocks.items()):
            if clock.entries and urgency not in firsts:
                firsts[urgency] = clock.first()
        heads = list(firsts.values())
        several = len(self._backlogs) > 1
        oldest = min(heads, key=attrgetter("arrived")) if several else next(self._ready())
        return oldest if now - oldest.arrived >= self.limits.starvation_limit else heads[0]


_URGENCY, _LENGTH = attrgetter("urgency"), attrgetter("length")
_BACKFILLED = 64
"""Entries that are tried where the head of the line does not fit."""
_CONSIDERED = 4
"""Full batches whose entries are candidates for the next batch."""
_SERVED = 0.8
"""Shares of the recent work from which on a flow has had its share, in batches."""
_SHORT = 3
"""Tokens of a short batch, in fixed costs of a batch: work on texts is three quarters of it."""


def _cheapest_with(head: Entry[T], candidates: Sequence[Entry[T]], limits: Limits) -> list[Entry[T]]:
    """Return the batch that holds the head, where all candidates are split into the batches that cost least together.

    Batches hold neighbours in the order of lengths, and the split is exact: see `models.batching`.
    """
    entries = sorted(candidates, key=_LENGTH, reverse=True)
    ends = split(
        [entry.length for entry in entries],
        fixed=limits.batch_cost,
        max_items=limits.max_batch_items,
        max_tokens=limits.max_batch_tokens,
    )
    number = bisect_right(ends, entries.index(head))
    start = ends[number - 1] if number else 0
    return [head, *(entry for entry in entries[start : ends[number]] if entry is not head)]


def _fill(
    batch: list[Entry[T]],
    candidates: Iterable[Entry[T]],
    limits: Limits,
    accepts: Callable[[Sequence[Entry[T]]], bool] = lambda batch: True,
) -> None:
    """Add the candidates that fit and that each cause no more padding than a batch costs."""
    longest = max(entry.length for entry in batch)
    for entry in candidates:
        if len(batch) >= limits.max_batch_items or longest * (len(batch) + 1) > limits.max_batch_tokens:
            return
        wider, count = max(longest, entry.length), len(batch) + 1
        padding = wider * count - longest * len(batch) - entry.length
        fits = count <= limits.max_batch_items and wider * count <= limits.max_batch_tokens
        if fits and padding <= limits.batch_cost and accepts([*batch, entry]):
            batch.append(entry)
            longest = wider
