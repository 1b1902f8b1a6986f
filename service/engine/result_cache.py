"""A cache of results, by input: identical inputs are computed once while one of them is, and not again afterwards.

Use it from one event loop. Nothing is stored of requests that fail.
"""

import asyncio
import copy
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from service.engine.batcher import DeadlineExceeded
from service.engine.caller import CacheUse
from service.engine.started import in_time

__all__ = ["Cached", "Key", "ResultCache", "deep_size"]


class Key(NamedTuple):
    """What a result depends on."""

    model: Hashable
    """The loaded model: one that is loaded again is another one."""
    tenant: str
    operation: Hashable
    params: bytes
    input: Hashable


@dataclass(frozen=True, slots=True)
class Cached:
    """A result and its number of words, labels or tokens."""

    result: Any
    items: int


class _Computation:
    """An input that is being computed, and the future of its result: None where its request has failed."""

    __slots__ = ("outcome", "urgency")

    def __init__(self, urgency: int) -> None:
        self.outcome: asyncio.Future[Cached | None] = asyncio.get_running_loop().create_future()
        self.urgency = urgency


_ENTRY_BYTES = 600
"""Bytes of an entry besides the input and the result: its key, its place in two dictionaries."""


class ResultCache:
    """Results in order of their last use, of which the oldest are dropped beyond a number of bytes."""

    def __init__(self, max_bytes: int, on_change: Callable[[int], object] = lambda size: None) -> None:
        """`on_change` is called with the bytes that are used."""
        self.max_bytes, self._on_change = max_bytes, on_change
        self._entries: OrderedDict[Key, tuple[Cached, int]] = OrderedDict()
        self._running: dict[Key, _Computation] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def results(
        self,
        keys: Sequence[Key],
        compute: Callable[[Sequence[int]], Awaitable[Sequence[Cached]]],
        *,
        urgency: int,
        deadline: float,
    ) -> tuple[list[Cached], CacheUse]:
        """Return the result of each key; `compute` returns those of some places.

        An input that another request computes, which is at least as urgent, is awaited until `deadline`, on the clock
        of `time.monotonic`; where that request fails or is cancelled, it is computed here. Raises `DeadlineExceeded`
        and the errors of `compute`.
        """
        found: dict[int, Cached] = {}
        left: Sequence[int] = range(len(keys))
        hits = collapsed = 0
        while left:
            own: dict[int, _Computation] = {}
            others: dict[int, _Computation] = {}
            for place in left:
                if (cached := self._get(keys[place])) is not None:
                    found[place] = cached
                    hits += 1
                elif (running := self._running.get(keys[place])) is not None and running.urgency <= urgency:
                    others[place] = running
                else:
                    own[place] = self._running[keys[place]] = _Computation(urgency)
            if own:
                found.update(await self._computed(keys, own, compute))
            awaited = {place: await _outcome(running, deadline) for place, running in others.items()}
            left = [place for place, outcome in awaited.items() if outcome is None]
            found.update((place, outcome) for place, outcome in awaited.items() if outcome is not None)
            collapsed += len(awaited) - len(left)
        return [found[place] for place in range(len(keys))], CacheUse(len(keys), hits, collapsed)

    async def _computed(
        self,
        keys: Sequence[Key],
        own: dict[int, _Computation],
        compute: Callable[[Sequence[int]], Awaitable[Sequence[Cached]]],
    ) -> dict[int, Cached]:
        computed: dict[int, Cached] = {}
        try:
            computed = dict(zip(own, await compute(list(own)), strict=True))
        finally:  # also where it is cancelled
            for place, running in own.items():
                if self._running.get(keys[place]) is running:
                    del self._running[keys[place]]
                running.outcome.set_result(computed.get(place))
        for place, cached in computed.items():
            self._put(keys[place], cached)
        return computed

    def _get(self, key: Key) -> Cached | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def _put(self, key: Key, cached: Cached) -> None:
        size, shares = deep_size(cached.result)
        if shares:  # it would keep the arrays of a whole batch
            cached = Cached(copy.deepcopy(cached.result), cached.items)
            size, _ = deep_size(cached.result)
        size += _ENTRY_BYTES + deep_size(key.input)[0]
        if key in self._entries:
            self.bytes -= self._entries.pop(key)[1]
        if size <= self.max_bytes:
            self._entries[key] = cached, size
            self.bytes += size
        while self.bytes > self.max_bytes:
            self.bytes -= self._entries.popitem(last=False)[1][1]
        self._on_change(self.bytes)

    def forget(self, model: Hashable) -> None:
        """Drop the results of a model that is unloaded."""
        for key in [key for key in self._entries if key.model == model]:
            self.bytes -= self._entries.pop(key)[1]
        self._on_change(self.bytes)


async def _outcome(running: _Computation, deadline: float) -> Cached | None:
    try:
        return await in_time(asyncio.shield(running.outcome), max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        raise DeadlineExceeded from None


_PLAIN = (str, bytes, int, float, bool, type(None), type, np.generic)


def deep_size(value: object) -> tuple[int, bool]:
    """Return the bytes of a value and all that it refers to, and whether an array of it is a part of another one."""
    total, shares, left = 0, False, [value]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, _PLAIN):
            continue
        if isinstance(each, np.ndarray):
            shares = shares or each.base is not None
            left.append(each.base)
        elif isinstance(each, dict):
            left += [*each.keys(), *each.values()]
        elif isinstance(each, (tuple, list, set, frozenset)):
            left += each
        else:
            left += _attributes(each)
    return total, shares


def _attributes(value: object) -> list[object]:
    names = [name for kind in type(value).__mro__ for name in _slots(kind)]
    found = [getattr(value, name) for name in names if hasattr(value, name)]
    return [*found, vars(value)] if hasattr(value, "__dict__") else found


def _slots(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    return [slots] if isinstance(slots, str) else [name for name in slots if name not in ("__dict__", "__weakref__")]
