"""Budgets that all requests of a process share: result items, bytes of decoding caches and of request bodies."""

import asyncio
from collections import deque

__all__ = ["BodyBudget", "BodyReservation", "Budget", "OverBudget", "ResultBudget"]

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
        """`unit` is the name of the amount in errors, such as "result items"."""
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

    async def reserve(self, amount: int, *, first: bool = False) -> None:
        """Reserve an amount, as soon as it fits, or `first` before all that wait.

        Raises `OverBudget`; cancelling the call reserves nothing.
        """
        self.check(amount)
        if self.try_reserve(amount):
            return
        granted = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft((amount, granted))
            self._grant()
        else:
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

    def __init__(self, total: int, unit: str) -> None:
        """`unit` is the name of the items in errors."""
        self._large, self._small = Budget(total, unit), Budget(max(1, total // _SMALL_SHARE), unit)

    @property
    def total(self) -> int:
        """The most that one request may have."""
        return self._large.total

    def of(self, items: int) -> Budget:
        """Return the budget that a request with so many items reserves from."""
        return self._small if items <= self.total // _SMALL else self._large


class BodyBudget:
    """Bytes of request bodies, of which a request reserves more while it receives its body.

    The bytes of one largest body are kept for the first reservation that has to wait: its body is received to the end
    with them. So bodies that have arrived in part cannot all wait for one another. Others wait in order.

    Use it from one event loop.
    """

    def __init__(self, total: int, largest: int) -> None:
        """`largest` is the most that one reservation may hold."""
        self.total = total
        self.used = 0
        """Bytes that are reserved, without those of the body that the kept ones are for."""
        self._shared = total - largest
        self._completing: BodyReservation | None = None
        self._waiting: deque[tuple[BodyReservation, int, asyncio.Future[None]]] = deque()

    async def reserve(self, holder: "BodyReservation", amount: int) -> None:
        """Add an amount to a reservation, as soon as it fits."""
        if holder is self._completing:
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append((holder, amount, granted))
        self._grant()
        if granted.done():
            return
        try:
            await granted
        except asyncio.CancelledError:
            self._grant()  # it may have held up smaller reservations
            raise

    def release(self, holder: "BodyReservation") -> None:
        """Release all that a reservation holds."""
        self.used -= holder.shared
        holder.shared = 0
        if holder is self._completing:
            self._completing = None
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            holder, amount, granted = self._waiting[0]
            if not granted.done():
                if self.used + amount <= self._shared:
                    self.used += amount
                    holder.shared += amount
                elif self._completing is None:
                    self._completing = holder
                else:
                    return
                granted.set_result(None)
            self._waiting.popleft()


class BodyReservation:
    """The bytes that one request has reserved of a budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.shared = 0
        """Bytes that are not those kept for one body."""

    async def extend(self, amount: int) -> None:
        """Reserve an amount in addition; cancelling the call reserves nothing more."""
        await self._budget.reserve(self, amount)

    def release(self) -> None:
        """Release everything."""
        self._budget.release(self)
