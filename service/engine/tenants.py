"""Tenants: API keys with a weight, limits and counters of their own."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field

from service.engine.caller import Account
from service.engine.fairness import SINGLE_FLOW, Flow
from service.engine.queue import QueueFull
from service.engine.quotas import CONCURRENT, DAY, Amount, Limits, Quota, Quotas, Spent
from service.engine.shared_counters import Counters, LocalCounters
from service.observability.metrics import Metrics

__all__ = ["Lease", "LimitReached", "Tenant", "Tenants", "amount_of"]

_MOST_SERIES = 100
"""Keys with series of their own in the metrics; the others share one."""
_OTHERS = "others"
"""Label of the keys that share series."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """A named API key."""

    id: str
    """Such as it is part of stored data; the key cannot be found from it."""
    name: str
    """Such as it is shown in metrics."""
    weight: float = 1.0
    limits: Limits = field(default_factory=Limits)


class LimitReached(QueueFull):
    """A request beyond a limit of its API key; `never` where it exceeds the whole limit alone."""

    def __init__(self, spent: Spent) -> None:
        super().__init__(never=math.isinf(spent.retry_after), retry_after=spent.retry_after)
        self.spent = spent

    @property
    def of_day(self) -> bool:
        """Whether the budget of a day is used up."""
        return self.spent.name == DAY

    def __str__(self) -> str:
        unit = self.spent.name.replace("-", " ")
        period = "" if self.spent.name in (DAY, CONCURRENT) else " in a minute"
        if self.never:
            return f"the request has {self.spent.asked}, and the API key may have {self.spent.limit} {unit}{period}"
        return f"the limit of the API key is reached: {self.spent.limit} {unit}{period}"


class _Use:
    """A tenant, its flow, its quotas and its metrics."""

    def __init__(self, tenant: Tenant, counters: Counters, metrics: Metrics, label: str) -> None:
        self.tenant, self.flow = tenant, Flow(tenant.id, tenant.weight)
        self.quotas: Quotas | None = None
        if tenant.limits != Limits():
            self.quotas = Quotas(tenant.limits, counters.of(tenant.id), counters.process)
        self.counters, self._metrics, self.label = counters, metrics, label
        self._requests = metrics.key_requests.labels(label)
        self._texts, self._characters = metrics.key_texts.labels(label), metrics.key_characters.labels(label)

    def take(self, amount: Amount) -> float:
        """Count an amount, and return the time in seconds since 1970; raises `LimitReached`."""
        spent, today = None, time.time()
        if self.quotas is not None:
            with self.counters.locked():
                spent = self.quotas.take(amount, time.monotonic(), today)
        if spent is not None:
            self._metrics.key_refused.labels(self.label, spent.name).inc()
            raise LimitReached(spent)
        self._requests.inc(amount.requests)
        self._texts.inc(amount.texts)
        self._characters.inc(amount.characters)
        return today

    def finish(self, amount: Amount, taken: float, *, used: bool) -> None:
        """Note that a request has ended, and uncount an amount that it has taken at a time and not used."""
        if self.quotas is None:
            return
        with self.counters.locked():
            self.quotas.finish(amount.texts)
            if not used:
                self.quotas.give_back(amount, taken)

    def state(self) -> Sequence[Quota]:
        if self.quotas is None:
            return ()
        with self.counters.locked():
            return list(self.quotas.state(time.monotonic(), time.time()))


class Tenants:
    """The tenants of a service by their identifiers. `replace` them at any time; counters stay."""

    def __init__(self, metrics: Metrics, counters: Counters | None = None) -> None:
        self._metrics, self._counters = metrics, counters or LocalCounters()
        self._uses: dict[str, _Use] = {}
        self._before: Mapping[str, tuple[int, int]] = {}

    @property
    def day_use(self) -> dict[str, tuple[int, int]]:
        """The day, in days since 1970, and the characters used in it, of each tenant with a daily budget."""
        found = {}
        for name, use in self._uses.items():
            if use.quotas is not None and use.quotas.limits.characters_per_day is not None:
                with self._counters.locked():
                    day, characters = use.quotas.used_today
                if day:
                    found[name] = day, characters
        return found

    def day_budget(self, tenant: str) -> Quota | None:
        """Return the daily budget of characters of a tenant; None where it has none."""
        use = self._uses.get(tenant)
        return None if use is None else next((each for each in use.state() if each.name == DAY), None)

    def resume(self, day_use: Mapping[str, tuple[int, int]]) -> None:
        """Continue with the use of daily budgets that was noted before a restart, `day_use` of that time."""
        self._before = day_use
        for name, use in self._uses.items():
            self._resume(name, use)

    def _resume(self, name: str, use: _Use) -> None:
        if use.quotas is not None and name in self._before:
            with self._counters.locked():
                use.quotas.resume(*self._before[name])

    def replace(self, tenants: Iterable[Tenant]) -> None:
        """Serve these tenants, and no others."""
        before = {each.label for each in self._uses.values()}
        self._uses = {
            each.id: _Use(each, self._counters, self._metrics, each.name if place < _MOST_SERIES else _OTHERS)
            for place, each in enumerate(tenants)
        }
        for name, use in self._uses.items():
            self._resume(name, use)
        for label in before - {each.label for each in self._uses.values()}:
            self._metrics.forget_key(label)

    def flow_of(self, tenant: str) -> Flow:
        """Return the flow of the requests of a caller; of equal weight where it is no tenant."""
        if not tenant:
            return SINGLE_FLOW
        use = self._uses.get(tenant)
        return Flow(tenant) if use is None else use.flow

    def begin(self, tenant: str, account: Account) -> "Lease | None":
        """Count a request of a caller until its answer is sent; None where it is no tenant. Raises `LimitReached`."""
        use = self._uses.get(tenant) if self._uses else None
        return None if use is None else Lease(use, account)


class Lease:
    """What one request has taken of the limits of its tenant."""

    def __init__(self, use: _Use, account: Account) -> None:
        self._use, self._taken, self._when = use, Amount(), time.time()
        self.used = False
        """Whether anything was computed: otherwise texts and characters are given back."""
        try:
            use.take(Amount(requests=1))
        finally:
            account.quotas = use.state
        account.at_the_end(self._end)

    def take(self, inputs: Sequence[object], *, images: bool = False) -> None:
        """Count inputs, the first time; raises `LimitReached`."""
        if not self._taken.texts:
            amount = Amount(0, len(inputs)) if images else amount_of(inputs)
            self._when = self._use.take(amount)
            self._taken = amount

    def _end(self) -> None:
        self._use.finish(self._taken, self._when, used=self.used)


def amount_of(inputs: Sequence[object]) -> Amount:
    """Return the number of texts and their characters; a token id counts as one character."""
    return Amount(0, len(inputs), sum(len(each) for each in inputs if isinstance(each, Sized)))
