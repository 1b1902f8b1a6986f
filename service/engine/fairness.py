"""Weighted fair queuing between flows, pure: which flow of several has been served least for its weight.

A flow is the requests of one API key. Each has a counter of the service that it has received, divided by its weight;
the flow with the least counter is served next, and charged for the work. A flow that starts to wait begins at the
counter of those that wait already, so that time without requests earns no credit: the virtual token counters of Sheng
et al., "Fairness in Serving Large Language Models" (OSDI 2024), which are start-time fair queuing (Goyal, Vin and
Cheng, 1996) with work that is charged when it is served. So cancelled and expired requests are not charged.

Taking turns alone does not keep a flow with many waiting entries from delaying the others: its turns come between
theirs, and the others wait for the end of full batches. `RecentWork` says whether a flow has had its share; the queue
serves a backlog that has had it after the entries of the other flows, in short batches.
"""

import heapq
import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ["SINGLE_FLOW", "Backlog", "FairClock", "Flow", "RecentWork", "Work", "share_of_backlogs"]


@dataclass(frozen=True, slots=True)
class Flow:
    """The requests of one API key."""

    name: str = ""
    weight: float = 1.0
    """Share of the capacity where several flows wait, relative to the weights of the others."""


SINGLE_FLOW = Flow()
"""The flow of all requests where there are no keys."""


class Work(Hashable, Protocol):
    """An entry of a queue."""

    @property
    def flow(self) -> Flow: ...

    @property
    def batch_key(self) -> Hashable:
        """Entries with the same key can share a batch."""
        ...

    @property
    def work(self) -> float:
        """Expected work, in a unit that all entries of a queue share."""
        ...


WorkT = TypeVar("WorkT", bound=Work)
_MOST_PLACES = 4
"""Places, current and older, for each flow that waits."""


class FairClock(Generic[WorkT]):
    """The waiting entries of one urgency, and the counters of their flows.

    Finding the first of `f` flows, or an entry's place among them, takes time O(log f) on average.
    """

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        """`numbers` are those of entries in the order of arrival, shared by clocks between which flows move."""
        self._waiting: dict[str, dict[WorkT, int]] = {}
        """The waiting entries of each flow, oldest first, with their numbers in the order of arrival."""
        self._served: dict[str, float] = {}
        self._floor = 0.0
        """The least counter of a flow that waited when the last batch was taken."""
        self._heap: list[tuple[float, int, str]] = []
        """Counter, number of the oldest entry, and name of each flow that waits; older ones are there until `_top`."""
        self._numbers = itertools.count() if numbers is None else numbers
        self.entries = 0
        """The number of entries that wait."""

    def __len__(self) -> int:
        """Return the number of flows that wait."""
        return len(self._waiting)

    def add(self, entry: WorkT) -> None:
        """Append an entry that starts to wait."""
        name, number = entry.flow.name, next(self._numbers)
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting[entry] = number
        else:
            self._waiting[name] = {entry: number}
            self._served[name] = max(self._served.get(name, 0.0), self._floor)
            self._place(name)
        self.entries += 1

    def remove(self, entry: WorkT) -> None:
        """Remove an entry that does not wait any more."""
        name = entry.flow.name
        waiting = self._waiting[name]
        was_first = next(iter(waiting)) is entry
        del waiting[entry]
        self.entries -= 1
        if waiting:
            if was_first:
                self._place(name)
            return
        self._forget(name)

    def move(self, name: str, to: "FairClock[WorkT]") -> None:
        """Move the entries of a flow, as far as there are any, and its counter to another clock."""
        waiting = self._waiting.get(name)
        if waiting is None:
            return
        to._waiting[name] = waiting
        to._served[name] = max(self._served[name], to._floor)
        to._place(name)
        to.entries += len(waiting)
        self.entries -= len(waiting)
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Remove a flow that does not wait any more."""
        del self._waiting[name]
        if not self._waiting:
            self._served.clear()
            self._heap.clear()
            self._floor = 0.0

    def charge(self, entries: Iterable[WorkT]) -> None:
        """Charge waiting entries, which are about to be served, to their flows."""
        if len(self._waiting) > 1:
            self._floor = max(self._floor, self._top()[0])
        charged = set()
        for entry in entries:
            name = entry.flow.name
            self._served[name] += entry.work / entry.flow.weight
            charged.add(name)
        for name in charged:
            self._place(name)

    def first(self) -> WorkT:
        """Return the first entry of the flow that has been served least, the oldest of several; one must wait."""
        name = next(iter(self._waiting)) if len(self._waiting) == 1 else self._top()[2]
        return next(iter(self._waiting[name]))

    def in_order(self, batch_key: Hashable, most: int) -> list[WorkT]:
        """Return waiting entries with a batch key in the order in which they would be served one by one."""
        if len(self._waiting) == 1:
            (name,) = self._waiting
            return [entry for _, entry in itertools.islice(self._with_key(name, batch_key), most)]
        found: list[WorkT] = []
        flows: list[tuple[float, int, WorkT, Iterator[tuple[int, WorkT]]]] = []
        read: dict[str, tuple[float, int, str]] = {}
        while len(found) < most:
            place = self._top() if len(read) < len(self._waiting) else None
            if place is not None and (not flows or place[:2] < flows[0][:2]):
                heapq.heappop(self._heap)
                if place[2] not in read:  # it may be there twice
                    read[place[2]] = place
                    rest = self._with_key(place[2], batch_key)
                    if (following := next(rest, None)) is not None:
                        heapq.heappush(flows, (place[0], *following, rest))
                continue
            if not flows:
                break
            start, _, entry, others = flows[0]  # numbers differ, so that no entries are compared
            found.append(entry)
            if (following := next(others, None)) is not None:
                heapq.heapreplace(flows, (start + entry.work / entry.flow.weight, *following, others))
            else:
                heapq.heappop(flows)
        for each in read.values():
            heapq.heappush(self._heap, each)
        return found

    def _with_key(self, name: str, batch_key: Hashable) -> Iterator[tuple[int, WorkT]]:
        return ((number, entry) for entry, number in self._waiting[name].items() if entry.batch_key == batch_key)

    def _place(self, name: str) -> None:
        """Note the counter and the oldest entry of a flow, which have changed; of a flow that waits alone nothing."""
        if len(self._waiting) < 2:
            self._heap.clear()
        elif not self._heap or len(self._heap) > _MOST_PLACES * len(self._waiting):
            self._heap = [self._place_of(each) for each in self._waiting]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, self._place_of(name))

    def _place_of(self, name: str) -> tuple[float, int, str]:
        return self._served[name], next(iter(self._waiting[name].values())), name

    def _top(self) -> tuple[float, int, str]:
        """Return the place of the flow that has been served least, without older places of flows before it."""
        while True:
            place = self._heap[0]
            if place[2] in self._waiting and place == self._place_of(place[2]):
                return place
            heapq.heappop(self._heap)


_MEMORY = 10.0
"""Seconds in which a batch's part of the recent work falls to 1 / e, and for which a flow without requests counts."""
_LARGE = 1e100


@dataclass(slots=True)
class _Recent:
    """The recent requests of a flow."""

    weight: float
    arrived: float
    work: float = 0.0
    """Its unit grows with time: see `RecentWork`."""


class RecentWork:
    """The work of the last seconds by flow, where several flows send requests; times in seconds, of any clock."""

    def __init__(self) -> None:
        self._flows: dict[str, _Recent] = {}
        """They are in the order of their last requests."""
        self._weights = self._work = 0.0
        self._unit, self._time = 1.0, 0.0
        """The unit of all sums grows with time, in place of each of them that would shrink."""

    def arrived(self, flow: Flow, now: float) -> None:
        """Note a request of a flow."""
        recent = self._flows.pop(flow.name, None) or _Recent(0.0, now)
        self._weights += flow.weight - recent.weight
        recent.weight, recent.arrived = flow.weight, now
        self._flows[flow.name] = recent
        while (oldest := next(iter(self._flows))) != flow.name and self._flows[oldest].arrived < now - _MEMORY:
            gone = self._flows.pop(oldest)
            self._weights -= gone.weight
            self._work -= gone.work

    def served(self, batch: Iterable[Work], now: float) -> None:
        """Note a batch that is about to be computed."""
        self._unit *= math.exp(min(max(0.0, now - self._time) / _MEMORY, 100.0))
        self._time = now
        for entry in batch:
            recent = self._flows.get(entry.flow.name)
            if recent is not None:
                recent.work += entry.work * self._unit
                self._work += entry.work * self._unit
        if self._unit > _LARGE:
            for each in self._flows.values():
                each.work /= self._unit
            self._work, self._unit = self._work / self._unit, 1.0

    def __len__(self) -> int:
        """Return the number of flows that had requests."""
        return len(self._flows)

    def fraction(self, name: str) -> float:
        """Return the weight of a flow, as a fraction of the weights of all flows that had requests."""
        recent = self._flows.get(name)
        return recent.weight / self._weights if recent else 1.0

    def shares(self, name: str) -> float:
        """Return the work of a flow, in shares that its weight gives it of the work of all flows."""
        recent = self._flows.get(name)
        return recent.work * self._weights / (self._work * recent.weight) if recent and self._work > 0 else 0.0


@dataclass(slots=True)
class Backlog:
    """The waiting entries of one flow."""

    weight: float
    items: int = 0
    tokens: int = 0
    cost: float = 0.0

    def add(self, items: int, tokens: int, cost: float) -> None:
        """Add entries; negative numbers remove them."""
        self.items += items
        self.tokens += tokens
        self.cost += cost

    def fraction(self, max_items: int, max_tokens: int) -> float:
        """Return the fraction of the queue that is filled, of items or tokens, for each unit of weight."""
        return max(self.items / max_items, self.tokens / max_tokens) / self.weight


def share_of_backlogs(backlogs: Mapping[str, Backlog], flow: Flow, cost: float) -> float:
    """Return the cost that is served before a flow has been served `cost` in addition to its waiting entries.

    Where all flows are served at rates in proportion to their weights, another flow is served its backlog at most, and
    at most what its weight gives it in the same time (generalized processor sharing, Parekh and Gallager, 1993).
    """
    own = cost + (backlogs[flow.name].cost if flow.name in backlogs else 0.0)
    rounds = own / flow.weight
    others: Iterator[Backlog] = (each for name, each in backlogs.items() if name != flow.name)
    return own - cost + sum(min(each.cost, rounds * each.weight) for each in others)
