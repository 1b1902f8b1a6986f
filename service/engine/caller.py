"""The caller of the engine, its deadline and urgency, and the account of its request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVarTuple

from service.engine.allowance import Allowance
from service.engine.queue import DEFAULT_URGENCY
from service.engine.quotas import Quota

__all__ = ["Account", "CacheUse", "Caller", "Timing"]


Arguments = TypeVarTuple("Arguments")


class Timing(NamedTuple):
    """Seconds that a request spent waiting and being computed: the longest of its entries."""

    queue: float
    inference: float
    batch: int = 0
    """Number of the batch that computed it, the last of several; each batcher counts its own."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """How many inputs of a request had a result in the cache, or one that another request was computing."""

    inputs: int
    hits: int
    collapsed: int

    @property
    def misses(self) -> int:
        return self.inputs - self.hits - self.collapsed


@dataclass(slots=True)
class Account:
    """Resources that a request holds until its answer is sent, and its model and timings, also where it fails."""

    model: str | None = None
    """Name of the model that was found."""
    allowance: Allowance | None = None
    timing: Timing | None = None
    """The durations of the computation, where there was one."""
    preparation_seconds: float = 0.0
    """Time in which its texts were tokenized or its images decoded."""
    short_deadline: bool = False
    """Whether it missed a deadline that was too short for any answer."""
    quotas: Callable[[], Sequence[Quota]] | None = None
    """Returns the limits of the API key and the rest of each, where it has some."""
    no_store: bool = False
    """Whether the client wants neither results of the cache nor its own stored there."""
    cache: CacheUse | None = None
    """The use of the cache of results, where it may be used."""
    _held: list[tuple[Callable[..., object], tuple[Any, ...]]] = field(default_factory=list)
    """What `close` calls."""

    def at_the_end(self, release: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Call a function once the answer is sent; the last one is called first."""
        self._held.append((release, arguments))

    def note_missed_deadline(self) -> None:
        """Note whether the deadline, which was missed, was too short for any answer."""
        if self.allowance is not None and self.allowance.too_short:
            self.short_deadline = True

    def take_over(self, step: "Account") -> None:
        """Take the model, the times and the deadline of a step of the request, which had an account of its own."""
        self.model, self.allowance, self.timing = step.model, step.allowance, step.timing
        self.preparation_seconds += step.preparation_seconds
        self.short_deadline |= step.short_deadline

    def close(self) -> None:
        """Release all resources: the answer is sent."""
        self.allowance = None  # which refers to this account
        if self._held:
            release, arguments = self._held.pop()
            try:
                release(*arguments)
            finally:
                self.close()


@dataclass(frozen=True, slots=True)
class Caller:
    """Key, deadline and urgency of a request."""

    account: Account
    timeout_ms: int | None = None
    """Milliseconds to the deadline; None for the service's default."""
    urgency: int = DEFAULT_URGENCY
    tenant: str = ""
    """Whose cache queries use."""
    side: str | None = None
    """The model of a canary that must answer: primary or candidate; by default the one that the canary chooses."""
