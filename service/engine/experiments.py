"""Experiments: a candidate gets a share of the requests of a primary model, after it (shadow) or in its place (canary).

A shadow computes what the primary has answered: the request is answered as without it, and its inputs wait in a
bounded queue until no other model has anything to compute. Under load that is never, and they are shed. A canary
answers its share of the requests itself.
"""

import asyncio
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, Literal

from models.operations.comparison import Comparison
from models.operations.operation import AnyOperation
from service.engine.agreement import Agreement
from service.engine.caller import Caller
from service.engine.daemon_executor import DaemonExecutor
from service.engine.priority import lower_thread_priority
from service.engine.served_model import Key, ServedModel, names_of
from service.engine.served_models import ServedModels
from service.observability.metrics import Metrics

__all__ = [
    "MAX_EXPERIMENTS",
    "Experiment",
    "ExperimentError",
    "Experiments",
    "Observed",
    "Plan",
    "Record",
    "UnknownExperimentError",
]

logger = logging.getLogger("softserve")

MAX_EXPERIMENTS = 8
"""Experiments at a time, each with series of its own."""
_MAX_WAITING, _MAX_SIZE = 256, 4 << 20
"""Inputs that wait for the candidate, and characters or bytes of these."""
_MAX_RESULT_ITEMS = 1000
"""Result items of a request that is compared: the results of the primary are kept until then."""
_OTHER_SIZE = 1000
"""Size that an input other than texts and files counts."""
_CHUNK = 8
"""Inputs that the candidate computes at once, since nothing interrupts them."""
_MAX_AGE = 30.0
"""Seconds after which waiting inputs are shed, and in which the candidate must compute a chunk."""
_PAUSE = 0.002
"""Seconds between two looks whether anything else is computed."""
_LEAST_URGENT = 7
_MAX_KEPT_CHARACTERS = 2000

Side = Literal["primary", "candidate"]


class ExperimentError(ValueError):
    """An experiment that cannot be started."""


class UnknownExperimentError(LookupError):
    """A name of no experiment."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no experiment {name!r}; experiments: {', '.join(sorted(known)) or 'none'}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The models that an experiment compares, and for which requests."""

    name: str
    primary: str
    """`"name"`, its version that answers now, or `"name:version"`."""
    candidate: str
    """`"name:version"`, or `"name"`, its newest version in the model directories."""
    mode: Literal["shadow", "canary"] = "shadow"
    share: float = 1.0
    """Fraction of the requests."""
    by: Literal["request", "key"] = "request"
    """Whether the share is one of requests, or of API keys, each of which always gets the same side."""
    keep_disagreements: int = 0
    """Number of the last inputs with different answers that are kept, with both answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """A request that a model has computed."""

    operation: AnyOperation
    inputs: Sequence[Any]
    params: Any
    items: int
    """Words, labels or tokens of all results."""
    seconds: float
    """Inference time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shadow:
    """A request that the primary has answered, for the candidate."""

    job: Observed
    results: Sequence[Any]
    tenant: str
    arrived: float

    @property
    def size(self) -> int:
        """Characters or bytes of the inputs."""
        return sum(len(each) if isinstance(each, (str, bytes)) else _OTHER_SIZE for each in self.job.inputs)


@dataclass(kw_only=True, slots=True)
class Record:
    """The models and results of an experiment so far: in one process, or in all of a service together."""

    plan: Plan
    primary: Key
    candidate: Key
    counts: Counter[str] = field(default_factory=Counter)
    """Inputs by what became of them: agree, disagree, compared (answers that are numbers), failed, shed."""
    requests: Counter[Side] = field(default_factory=Counter)
    """Requests that each side has answered, in a canary."""
    statistics: Agreement = field(default_factory=Agreement)
    disagreements: deque[Mapping[str, object]] = field(default_factory=deque)
    started: float = field(default_factory=time.time)

    @classmethod
    def together(cls, records: Sequence["Record"]) -> "Record":
        """Return what several processes have found; of the texts with different answers, as many as one keeps."""
        first = records[0]
        kept: deque[Mapping[str, object]] = deque(maxlen=first.plan.keep_disagreements)
        for record in records:
            kept.extend(record.disagreements)
        return Record(
            plan=first.plan,
            primary=first.primary,
            candidate=first.candidate,
            counts=sum((record.counts for record in records), Counter[str]()),
            requests=sum((record.requests for record in records), Counter[Side]()),
            statistics=Agreement.together(record.statistics for record in records),
            disagreements=kept,
            started=min(record.started for record in records),
        )

    def summary(self) -> dict[str, object]:
        """Return the state of the experiment as JSON."""
        plan = self.plan
        return {
            "name": plan.name,
            "primary": names_of(self.primary)[1],
            "candidate": names_of(self.candidate)[1],
            "mode": plan.mode,
            "share": plan.share,
            "by": plan.by,
            "seconds": time.time() - self.started,
            "inputs": {name: self.counts[name] for name in ("agree", "disagree", "compared", "failed", "shed")},
            "requests": {side: self.requests[side] for side in ("primary", "candidate")},
            "disagreements": list(self.disagreements),
            **self.statistics.summary(),
        }


@dataclass(kw_only=True, eq=False, slots=True)
class Experiment(Record):
    """A running experiment."""

    loaded: bool
    """Whether the candidate was loaded for it."""
    _waiting: deque[_Shadow] = field(default_factory=deque)
    _items: int = 0
    _size: int = 0
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def record(self) -> Record:
        """The results so far, without the inputs that wait."""
        return Record(**{each.name: getattr(self, each.name) for each in fields(Record)})

    def chosen(self, caller: Caller) -> bool:
        """Return whether a request is part of the share."""
        if self.plan.by == "key":
            digest = sha256(f"{self.plan.name}\0{caller.tenant}".encode()).digest()
            return int.from_bytes(digest[:8], "big") < self.plan.share * 2**64
        return random.random() < self.plan.share

    def has_room(self, count: int, size: int = 0) -> bool:
        """Return whether so many inputs, of so many characters or bytes, fit into the queue."""
        return self._items + count <= _MAX_WAITING and self._size + size <= _MAX_SIZE

    def push(self, shadow: _Shadow) -> bool:
        """Add a request to the queue; return whether there was room."""
        count = len(shadow.job.inputs)
        if not self.has_room(count, shadow.size):
            return False
        self._waiting.append(shadow)
        self._items, self._size = self._items + count, self._size + shadow.size
        self._wake.set()
        return True

    async def next(self) -> _Shadow:
        """Wait for a request and remove it from the queue."""
        while not self._waiting:
            self._wake.clear()
            await self._wake.wait()
        shadow = self._waiting.popleft()
        self._items, self._size = self._items - len(shadow.job.inputs), self._size - shadow.size
        return shadow


class Experiments:
    """The experiments of a service; use from one event loop."""

    def __init__(self, served_models: ServedModels, metrics: Metrics) -> None:
        self._served_models, self._metrics = served_models, metrics
        self._running: dict[str, Experiment] = {}
        self._by_primary: dict[Key, Experiment] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._thread: DaemonExecutor | None = None

    def __bool__(self) -> bool:
        return bool(self._running)

    def __iter__(self) -> Iterator[Experiment]:
        return iter(self._running.values())

    def get(self, name: str) -> Experiment:
        """Return an experiment; raises `UnknownExperimentError`."""
        if name not in self._running:
            raise UnknownExperimentError(name, self._running)
        return self._running[name]

    async def start(self, plan: Plan) -> Experiment:
        """Start an experiment, whose candidate is loaded where it is not served.

        Raises `ExperimentError`, `UnknownModelError` and the errors of loading.
        """
        models = self._served_models
        if plan.name in self._running or len(self._running) >= MAX_EXPERIMENTS:
            known = "of that name" if plan.name in self._running else f"already, which are {MAX_EXPERIMENTS}"
            raise ExperimentError(f"there are experiments {known}: end one first")
        primary = models.named(plan.primary)
        if primary.key in self._by_primary:
            raise ExperimentError(f"{plan.primary} is the primary of another experiment")
        with models.answering(primary.key):
            candidate, loaded = await self._candidate(plan)
            if candidate.key == primary.key:
                raise ExperimentError("the candidate is the primary itself: name another version or model")
            if set(candidate.model.offers).isdisjoint(primary.model.offers) or (
                candidate.model.reads != primary.model.reads
            ):
                raise ExperimentError(f"{plan.candidate} offers no operation of {plan.primary}")
            models.keep(primary.key, candidate.key)
        return self._begin(plan, primary.key, candidate.key, loaded=loaded)

    def resume(self, record: Record, *, loaded: bool) -> Experiment:
        """Start an experiment of another process, whose models are served already; it has found nothing yet."""
        return self._begin(record.plan, record.primary, record.candidate, loaded=loaded)

    def _begin(self, plan: Plan, primary: Key, candidate: Key, *, loaded: bool) -> Experiment:
        experiment = Experiment(plan=plan, primary=primary, candidate=candidate, loaded=loaded)
        experiment.disagreements = deque(maxlen=plan.keep_disagreements)
        self._running[plan.name] = self._by_primary[primary] = experiment
        self._metrics.experiment_info.labels(plan.name).set(1)
        if plan.mode == "shadow":
            self._tasks[plan.name] = asyncio.create_task(self._compare(experiment))
        return experiment

    async def _candidate(self, plan: Plan) -> tuple[ServedModel, bool]:
        models, (name, _, version) = self._served_models, plan.candidate.partition(":")
        if version.isdecimal() and (name, int(version)) in models.served:
            return models.served[name, int(version)], False
        before = set(models.served)
        served = await models.add(plan.candidate, background=plan.mode == "shadow")
        return served, served.key not in before

    async def drop(self, name: str) -> Experiment:
        """End an experiment: names are answered as before it, and a candidate that was loaded for it is unloaded."""
        experiment = await self._end(name)
        if experiment.loaded and experiment.candidate in self._served_models.served:
            await self._served_models.remove(names_of(experiment.candidate)[1])
        self._served_models.release(experiment.primary, experiment.candidate)
        return experiment

    async def promote(self, name: str) -> Experiment:
        """End an experiment: the name of the primary is answered by the candidate from now on.

        A shadow that was loaded for the experiment is loaded again, with threads of the usual priority. Raises
        `UnknownExperimentError`, `UnknownModelError` where the candidate is not served any more, and the errors of
        loading, after which the experiment goes on.
        """
        experiment = self.get(name)
        models, candidate = self._served_models, names_of(experiment.candidate)[1]
        models.named(candidate)  # raises where it is unloaded
        if experiment.loaded and experiment.plan.mode == "shadow":
            await models.add(candidate)  # once more, since nothing raises the priority of its threads
        await self._end(name)
        self._served_models.promote(experiment.primary, experiment.candidate)
        return experiment

    async def _end(self, name: str) -> Experiment:
        experiment = self.get(name)
        del self._running[name], self._by_primary[experiment.primary]
        if (task := self._tasks.pop(name, None)) is not None:
            task.cancel()
            await asyncio.wait([task])
        self._metrics.forget_experiment(name)
        return experiment

    async def stop(self) -> None:
        """End all comparisons; experiments are not kept."""
        for name in list(self._running):
            await self._end(name)
        if self._thread is not None:
            self._thread.shutdown()

    def answering(self, served: ServedModel, name: str | None, operation: str, caller: Caller) -> ServedModel:
        """Return the model that answers a request to a model: the candidate, for the share of a canary.

        A request that states a version is answered by that one.
        """
        experiment = self._by_primary.get(served.key)
        if experiment is None or experiment.plan.mode != "canary" or ":" in (name or ""):
            return served
        candidate = self._served_models.served.get(experiment.candidate)
        side: Side = "primary"
        wanted = experiment.chosen(caller) if caller.side is None else caller.side == "candidate"
        if wanted and candidate is not None and operation in candidate.model.offers:
            served, side = candidate, "candidate"
        experiment.requests[side] += 1
        self._metrics.experiment_requests.labels(experiment.plan.name, side).inc()
        return served

    def _timed(self, served: ServedModel, seconds: float) -> None:
        """Note the inference time of a request, which a model of a canary has answered."""
        for each in self._running.values():
            if each.plan.mode == "canary" and served.key in (each.primary, each.candidate):
                self._time(each, int(served.key == each.candidate), seconds)

    def observed(self, served: ServedModel, results: Iterable[Any], job: "Observed", caller: Caller) -> Iterable[Any]:
        """Return the results of a request, which are compared with those of a shadow once all are read."""
        self._timed(served, job.seconds)
        experiment = self._by_primary.get(served.key)
        if experiment is None or experiment.plan.mode != "shadow" or not experiment.chosen(caller):
            return results
        if job.items > _MAX_RESULT_ITEMS or not experiment.has_room(len(job.inputs)):
            self._count(experiment, "shed", len(job.inputs))
            return results
        return self._kept(experiment, results, job, caller.tenant, asyncio.get_running_loop())

    def _kept(
        self,
        experiment: Experiment,
        results: Iterable[Any],
        job: "Observed",
        tenant: str,
        loop: asyncio.AbstractEventLoop,
    ) -> Iterator[Any]:
        kept = []
        for each in results:
            kept.append(each)
            yield each
        shadow = _Shadow(job=job, results=kept, tenant=tenant, arrived=time.monotonic())
        loop.call_soon_threadsafe(self._offer, experiment, shadow)  # a large answer is read on another thread

    def _offer(self, experiment: Experiment, shadow: _Shadow) -> None:
        if experiment.plan.name in self._running and not experiment.push(shadow):
            self._count(experiment, "shed", len(shadow.job.inputs))

    async def _compare(self, experiment: Experiment) -> None:
        while True:
            shadow = await experiment.next()
            for start in range(0, len(shadow.job.inputs), _CHUNK):
                chunk = slice(start, start + _CHUNK)
                count = len(shadow.job.inputs[chunk])
                if not await self._idle(experiment, shadow.arrived + _MAX_AGE):
                    self._count(experiment, "shed", count)
                    continue
                try:
                    await self._compared(experiment, shadow, chunk)
                except Exception as error:
                    self._count(experiment, "failed", count)
                    logger.debug("experiment %s: the candidate fails: %r", experiment.plan.name, error)

    async def _idle(self, experiment: Experiment, deadline: float) -> bool:
        """Wait until no other model has anything to compute; return whether that came before the deadline."""
        while any(
            not served.batcher.idle for key, served in self._served_models.served.items() if key != experiment.candidate
        ):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_PAUSE)
        return time.monotonic() <= deadline

    async def _compared(self, experiment: Experiment, shadow: _Shadow, chunk: slice) -> None:
        """Compute some inputs of a request by the candidate, and compare the results."""
        candidate = self._served_models.served[experiment.candidate]
        candidate.hold()
        try:
            model, operation = candidate.model, shadow.job.operation
            if shadow.tenant:
                model = model.with_cache_salt(shadow.tenant)
            inputs, results = shadow.job.inputs[chunk], shadow.results[chunk]
            queries = await self._on_thread(
                lambda: [operation.query(model, each, shadow.job.params, _MAX_WAITING) for each in inputs]
            )
            parts = [query.parts() for query in queries]
            function = operation.function_of(model, shadow.job.params)
            outputs, timing = await candidate.batcher.submit(
                function, [part for some in parts for part in some], time.monotonic() + _MAX_AGE, _LEAST_URGENT
            )
            rest = iter(outputs)
            split = [[next(rest) for _ in some] for some in parts]

            def compare() -> list[tuple[Any, Comparison]]:
                found = [model.result(query, some) for query, some in zip(queries, split, strict=True)]
                pairs = zip(results, found, strict=True)
                return [(second, operation.comparison_of(first, second, shadow.job.params)) for first, second in pairs]

            compared = await self._on_thread(compare)
        finally:
            candidate.release()
        self._time(experiment, 0, shadow.job.seconds)
        self._time(experiment, 1, timing.inference)
        for text, first, (second, comparison) in zip(inputs, results, compared, strict=True):
            self._note(experiment, shadow, comparison, (text, first, second))

    def _note(
        self, experiment: Experiment, shadow: _Shadow, comparison: Comparison, answers: tuple[Any, Any, Any]
    ) -> None:
        experiment.statistics.add(comparison)
        outcome = {None: "compared", True: "agree", False: "disagree"}[comparison.agrees]
        self._count(experiment, outcome, 1)
        if comparison.agrees is False and experiment.plan.keep_disagreements and isinstance(answers[0], str):
            text, first, second = answers
            content = [shadow.job.operation.content_of(each, shadow.job.params) for each in (first, second)]
            experiment.disagreements.append(
                {
                    "operation": shadow.job.operation.name,
                    "input": text[:_MAX_KEPT_CHARACTERS],
                    "primary": content[0],
                    "candidate": content[1],
                }
            )

    async def _on_thread(self, function: Callable[[], Any]) -> Any:
        """Call a function on a thread of low priority, so that the event loop is not delayed."""
        if self._thread is None:
            self._thread = DaemonExecutor(1, "softserve-experiment", lower_thread_priority)
        return await asyncio.wrap_future(self._thread.submit(function))

    def _count(self, experiment: Experiment, outcome: str, items: int) -> None:
        experiment.counts[outcome] += items
        self._metrics.experiment_inputs.labels(experiment.plan.name, outcome).inc(items)

    def _time(self, experiment: Experiment, side: int, seconds: float) -> None:
        experiment.statistics.timed(side, seconds)
        self._metrics.experiment_duration.labels(experiment.plan.name, ("primary", "candidate")[side]).observe(seconds)
