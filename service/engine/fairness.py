"""Weighted fair queuing between flows, pure: which flow of several has been served least for its weight.

A flow is the requests of one API key. Each has a counter of the service that it has received, divided by its weight;
the flow with the least counter is served next, and charged for the work. A flow that starts to wait begins at the
counter of those that wait already, so that time without requests earns no credit: the virtual token counters of Sheng
et al., "Fairness in Serving Large Language Models" (OSDI 2024), which are start-time fair queuing (Goyal, Vin and
Cheng, 1996) with work that is charged when it is served. So cancelled and expired requests are not charged.
"""

import heapq
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ["SINGLE_FLOW", "Backlog", "FairClock", "Flow", "Work", "share_of_backlogs"]


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

    def __init__(self) -> None:
        self._waiting: dict[str, dict[WorkT, int]] = {}
        """The waiting entries of each flow, oldest first, with their numbers in the order of arrival."""
        self._served: dict[str, float] = {}
        self._floor = 0.0
        """The least counter of a flow that waited when the last batch was taken."""
        self._heap: list[tuple[float, int, str]] = []
        """Counter, number of the oldest entry, and name of each flow that waits; older ones are there until `_top`."""
        self._numbers = itertools.count()
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
        return next(iter(self._waiting[self._top()[2]]))

    def in_order(self, batch_key: Hashable, most: int) -> list[WorkT]:
        """Return waiting entries with a batch key in the order in which they would be served one by one."""
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
        """Note the counter and the oldest entry of a flow, which have changed."""
        if len(self._heap) > _MOST_PLACES * len(self._waiting):
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
    """Return the cost that is served before a flow has been served `cost` in addition to what waits of it.

    Where all flows are served at rates in proportion to their weights, another flow is served its backlog at most, and
    at most what its weight gives it in the same time (generalized processor sharing, Parekh and Gallager, 1993).
    """
    own = cost + (backlogs[flow.name].cost if flow.name in backlogs else 0.0)
    rounds = own / flow.weight
    others: Iterator[Backlog] = (each for name, each in backlogs.items() if name != flow.name)
    return own - cost + sum(min(each.cost, rounds * each.weight) for each in others)
