"""Weighted fair queuing between flows, pure: which flow of several has been served least for its weight.

A flow is the requests of one API key. Each has a counter of the service that it has received, divided by its weight;
the flow with the least counter is served next, and charged for the work. A flow that starts to wait begins at the
counter of those that wait already, so that time without requests earns no credit: the virtual token counters of Sheng
et al., "Fairness in Serving Large Language Models" (OSDI 2024), which are start-time fair queuing (Goyal, Vin and
Cheng, 1996) with work that is charged when it is served. So cancelled and expired requests are not charged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol, TypeVar

__all__ = ["SINGLE_FLOW", "Backlog", "FairClock", "Flow", "Work", "share_of_backlogs"]


@dataclass(frozen=True, slots=True)
class Flow:
    """The requests of one API key."""

    name: str = ""
    weight: float = 1.0
    """Share of the capacity where several flows wait, relative to the weights of the others."""


SINGLE_FLOW = Flow()
"""The flow of all requests where there are no keys."""


class Work(Protocol):
    """An entry of a queue."""

    @property
    def flow(self) -> Flow: ...

    @property
    def work(self) -> float:
        """Expected work, in a unit that all entries of a queue share."""
        ...


WorkT = TypeVar("WorkT", bound=Work)


class FairClock:
    """The counters of the flows that wait with one urgency, and of those that have waited since the queue was empty."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        """Waiting entries of each flow."""
        self._served: dict[str, float] = {}
        self._floor = 0.0
        """The least counter of a flow that waited when the last batch was taken."""

    def __len__(self) -> int:
        """Return the number of flows that wait."""
        return len(self._waiting)

    def add(self, entry: Work) -> None:
        """Count an entry that starts to wait."""
        name = entry.flow.name
        if name in self._waiting:
            self._waiting[name] += 1
        else:
            self._waiting[name] = 1
            self._served[name] = max(self._served.get(name, 0.0), self._floor)

    def remove(self, entry: Work) -> None:
        """Uncount an entry that does not wait any more."""
        name = entry.flow.name
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
            if not self._waiting:
                self._served.clear()
                self._floor = 0.0

    def charge(self, entries: Iterable[Work]) -> None:
        """Charge waiting entries, which are about to be served, to their flows."""
        if len(self._waiting) > 1:
            self._floor = max(self._floor, min(map(self._served.__getitem__, self._waiting)))
        for entry in entries:
            self._served[entry.flow.name] += entry.work / entry.flow.weight

    def first(self, entries: Iterable[WorkT]) -> WorkT:
        """Return the first of waiting entries of the flow that has been served least."""
        return min(entries, key=lambda entry: self._served[entry.flow.name])

    def in_order(self, entries: Sequence[WorkT]) -> Sequence[WorkT]:
        """Return waiting entries in the order in which they would be served one by one."""
        if len(self._waiting) < 2:
            return entries
        starts: dict[str, float] = {}
        order = []
        for place, entry in enumerate(entries):
            name = entry.flow.name
            start = starts.get(name)
            if start is None:
                start = self._served[name]
            order.append((start, place))
            starts[name] = start + entry.work / entry.flow.weight
        order.sort()
        return [entries[place] for place in map(itemgetter(1), order)]


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
