"""Limits on the requests of an API key, pure: no clock, no input or output.

Limits for a minute are token buckets: the whole limit at once after a minute without requests, refilled evenly. They
are kept as the time at which the bucket is full again, which is the virtual scheduling form of the generic cell rate
algorithm (ITU-T I.371). The budget of a day begins anew at midnight, UTC.
"""

import math
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["CONCURRENT", "COUNTERS", "DAY", "Amount", "Limits", "Quota", "Quotas", "Spent"]

_MINUTE, _DAY = 60.0, 86_400
_REQUESTS, _TEXTS, _CHARACTERS, _TODAY, _USED = range(5)
"""Counters: when the bucket of requests, of texts and of characters is full; the day, and the characters used in it."""
COUNTERS = 5
"""Counters of a key, after which there is one for each process: its texts in progress."""
_RETRY_IN_PROGRESS = 1.0
"""Seconds after which a request beyond the texts in progress may be repeated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of a key; None for no limit."""

    requests_per_minute: int | None = None
    texts_per_minute: int | None = None
    characters_per_minute: int | None = None
    concurrent_texts: int | None = None
    characters_per_day: int | None = None


class Amount(NamedTuple):
    """The requests, texts and characters of a request."""

    requests: int = 0
    texts: int = 0
    characters: int = 0


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit and the rest of it."""

    name: str
    limit: int
    window: int | None
    """Seconds; None where it is no limit of a time."""
    left: int
    reset: float | None
    """Seconds until all of it is left again; None where the service cannot know."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The limit that a request exceeds."""

    name: str
    limit: int
    asked: int
    retry_after: float
    """Seconds after which as much is left as the request asks for; infinite where the limit is lower than that."""


class Quotas:
    """The limits of one key and its counters, which several processes may share."""

    def __init__(self, limits: Limits, counters: MutableSequence[float], process: int = 0) -> None:
        """`counters` are `COUNTERS` numbers and one for each process, of which this is one; 0 at first."""
        self.limits, self._counters, self._own = limits, counters, COUNTERS + process

    def take(self, amount: Amount, now: float, today: float) -> Spent | None:
        """Count a request, or return the limit that it exceeds.

        `now` is on a clock that the processes share, `today` in seconds since 1970, in UTC.
        """
        self._begin_day(today)
        spent = max(self._exceeded(amount, now, today), key=lambda each: each.retry_after, default=None)
        if spent is None:
            self._add(amount, now)
        return spent

    def _add(self, amount: Amount, now: float) -> None:
        for place, limit, asked in self._minutes(amount):
            self._counters[place] = max(self._counters[place], now) + asked * _MINUTE / limit
        self._counters[_USED] += amount.characters
        self._counters[self._own] += amount.texts

    def finish(self, texts: int) -> None:
        """Uncount texts that are answered, or whose request has failed."""
        self._counters[self._own] -= texts

    def give_back(self, amount: Amount, taken: float) -> None:
        """Give back what a request has not used, which `take` has counted at a time in seconds since 1970."""
        for place, limit, asked in self._minutes(amount):
            self._counters[place] -= asked * _MINUTE / limit
        if self._counters[_TODAY] == taken // _DAY:
            self._counters[_USED] -= amount.characters

    def _minutes(self, amount: Amount) -> Iterator[tuple[int, int, int]]:
        """Yield counter, limit and amount of each limit for a minute."""
        limits = self.limits
        of_minute = (limits.requests_per_minute, limits.texts_per_minute, limits.characters_per_minute)
        for place, (limit, asked) in enumerate(zip(of_minute, amount, strict=True)):
            if limit is not None:
                yield place, limit, asked

    def _begin_day(self, today: float) -> None:
        day = today // _DAY
        if self._counters[_TODAY] != day:
            self._counters[_TODAY], self._counters[_USED] = day, 0.0

    def _exceeded(self, amount: Amount, now: float, today: float) -> Iterator[Spent]:
        for place, limit, asked in self._minutes(amount):
            wait = max(self._counters[place] - now, 0.0) + asked * _MINUTE / limit - _MINUTE
            if asked and wait > 1e-6:
                yield Spent(_NAMES[place], limit, asked, wait if asked <= limit else math.inf)
        most = self.limits.concurrent_texts
        if most is not None and amount.texts and self._in_progress + amount.texts > most:
            after = _RETRY_IN_PROGRESS if amount.texts <= most else math.inf
            yield Spent(CONCURRENT, most, amount.texts, after)
        budget = self.limits.characters_per_day
        if budget is not None and amount.characters and self._counters[_USED] + amount.characters > budget:
            after = _DAY - today % _DAY if amount.characters <= budget else math.inf
            yield Spent(DAY, budget, amount.characters, after)

    @property
    def _in_progress(self) -> int:
        return round(sum(self._counters[COUNTERS:]))

    def resume(self, day: int, characters: int) -> None:
        """Continue with the use of a day, in days since 1970, that was noted before a restart."""
        if (day, characters) > self.used_today:
            self._counters[_TODAY], self._counters[_USED] = day, characters

    @property
    def used_today(self) -> tuple[int, int]:
        """The day, in days since 1970, and the characters that are used of its budget."""
        return int(self._counters[_TODAY]), int(self._counters[_USED])

    def state(self, now: float, today: float) -> Iterator[Quota]:
        """Yield each limit with what is left of it."""
        self._begin_day(today)
        for place, limit, _ in self._minutes(Amount()):
            reset = min(max(self._counters[place] - now, 0.0), _MINUTE)
            yield Quota(_NAMES[place], limit, int(_MINUTE), int(limit * (1 - reset / _MINUTE) + 1e-6), reset)
        if (most := self.limits.concurrent_texts) is not None:
            yield Quota(CONCURRENT, most, None, max(0, most - self._in_progress), None)
        if (budget := self.limits.characters_per_day) is not None:
            left = max(0, budget - int(self._counters[_USED]))
            yield Quota(DAY, budget, _DAY, left, _DAY - today % _DAY)


_NAMES = {_REQUESTS: "requests", _TEXTS: "texts", _CHARACTERS: "characters"}
CONCURRENT, DAY = "concurrent-texts", "characters-per-day"
"""Names of the limit of texts in progress, and of the budget of a day."""
