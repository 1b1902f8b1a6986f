"""Budgets that all requests of a process share: result items, and bytes of decoding caches."""

import asyncio
from collections import deque

__all__ = ["Budget", "OverBudget", "ResultBudget"]

_SMALL = 64
"""A request with at most 1 / 64 of all result items is small."""
_SMALL_SHARE = 4
"""Small requests have 1 / 4 of the result budget in addition, so that large ones do not block them."""


class OverBudget(Exception):
    """A request that needs more than a whole budget: it can never be computed."""


class Budget:
    """An amount of which work reserves a part before it begins, and which it releases after it.

    Use it from one event loop. Reservations that do not fit wait in order.
    """

    def __init__(self, total: int, unit: str) -> None:
        """`unit` is what errors call the amount, such as "result items (--max-result-items)"."""
        self.total = total
        self.used = 0
        self._unit = unit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def check(self, amount: int) -> None:
        """Raise `OverBudget` for an amount that would not fit if nothing else were reserved."""
        if amount > self.total:
            raise OverBudget(f"the request needs {amount} {self._unit}; the limit is {self.total}")

    def try_reserve(self, amount: int) -> bool:
        """Reserve an amount if it fits now and no other reservation is waiting; nothing always fits."""
        if amount and (self._waiting or self.used + amount > self.total):
            return False
        self.used += amount
        return True

    async def reserve(self, amount: int) -> None:
        """Reserve an amount, as soon as it fits. Raises `OverBudget`; cancelling the call reserves nothing."""
        self.check(amount)
        if self.try_reserve(amount):
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._grant()  # it may have held up smaller reservations
            else:
                self.release(amount)
            raise

    def release(self, amount: int) -> None:
        """Release an amount."""
        self.used -= amount
        assert self.used >= 0, "more was released than reserved"
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            amount, granted = self._waiting[0]
            if not granted.done() and self.used + amount > self.total:
                return
            self._waiting.popleft()
            if not granted.done():
                self.used += amount
                granted.set_result(None)


class ResultBudget:
    """The result items that requests may hold until their answers are sent: words, labels, tokens."""

    def __init__(self, total: int) -> None:
        unit = "result items (--max-result-items)"
        self._large, self._small = Budget(total, unit), Budget(max(1, total // _SMALL_SHARE), unit)

    @property
    def total(self) -> int:
        """The most that one request may have."""
        return self._large.total

    def of(self, items: int) -> Budget:
        """Return the budget that a request with so many items reserves from."""
        return self._small if items <= self.total // _SMALL else self._large
