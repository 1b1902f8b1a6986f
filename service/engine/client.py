"""The interface of the engine: a job in, its outcome out, the same for every protocol."""

import asyncio
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from models import QueryError
from models.operations.operation import AnyOperation, BetweenLanguages, Params
from models.operations.query import Part
from models.tasks.model import AnyModel
from service.engine.allowance import SHORT_DEADLINE, Allowance
from service.engine.batcher import DeadlineExceeded, Timing, Work
from service.engine.budget import Budget
from service.engine.caller import Account, Caller
from service.engine.experiments import Experiments, Observed
from service.engine.languages import Through, find_pair, language_pairs
from service.engine.resources import Resources
from service.engine.result_cache import Cached, Key, ResultCache
from service.engine.served_model import ServedModel
from service.engine.served_models import ServedModels
from service.engine.shared_counters import Counters
from service.engine.started import in_time
from service.engine.tenants import Lease, Tenants
from service.observability.metrics import Metrics
from service.observability.tracing import trace_request
from service.settings import Settings

__all__ = ["Begun", "Engine", "Job", "Outcome"]

QueryT = TypeVar("QueryT")
ResultT = TypeVar("ResultT")

_INLINE_ITEMS = 1000
"""Larger results of a first step are made on another thread."""
_LARGE_RESULT = 10_000
"""Result items after which freed memory is returned to the operating system."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """An operation on inputs."""

    operation: AnyOperation
    inputs: Sequence[Any]
    params: Params
    caller: Caller
    model: str | None = None
    """`"name"` or `"name:version"`; None for the one model that offers the operation, or that of its languages."""
    through: Through | None = None
    """The first step through a third language; the model then does the second one."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResultT]):
    """The results of a job, which are made while they are read."""

    served: ServedModel
    results: Iterable[ResultT]
    items: int
    """Words, labels or tokens in all of them."""


def _result(model: Any, query: Any, outputs: Sequence[Any]) -> Any:
    return model.result(query, outputs)


class _Computed(NamedTuple):
    """The outputs of queries."""

    queries: Sequence[Any]
    parts: Sequence[int]
    """The number of parts of each query."""
    outputs: Sequence[Any]
    """The outputs of all parts, in their order."""
    items: Sequence[int]
    """The result items of each query."""

    def results(self, model: AnyModel, result: Callable[[Any, Any, Sequence[Any]], Any] = _result) -> Iterator[Any]:
        """Yield the result of each query, which `result` makes while it is read."""
        rest = iter(self.outputs)
        for query, count in zip(self.queries, self.parts, strict=True):
            yield result(model, query, list(itertools.islice(rest, count)))


class Begun:
    """A request whose model is found and held: its inputs are prepared, and its parts computed, step by step."""

    def __init__(
        self,
        engine: "Engine",
        served: ServedModel,
        caller: Caller,
        *,
        deadline: float | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.served, self.model = served, served.model
        self._engine, self._account = engine, caller.account
        earlier = caller.account.timing
        self._urgency = caller.urgency
        self._seconds = [0.0, 0.0] if earlier is None else [earlier.queue, earlier.inference]
        self.flow = engine.tenants.flow_of(caller.tenant)
        """The requests of the same API key, which share the model with those of others."""
        self._lease = engine.tenants.begin(caller.tenant, caller.account) if lease is None else lease
        if caller.tenant and not engine.settings.share_prefix_cache:
            self.model = served.model.with_cache_salt(caller.tenant)
        self.deadline = engine.deadline(caller) if deadline is None else deadline
        self.reserved = 0
        """Result items that are reserved."""

    def count(self, inputs: Sequence[Any], *, images: bool = False) -> None:
        """Count inputs against the limits of the API key, the first time; raises `LimitReached`."""
        if self._lease is not None:
            self._lease.take(inputs, images=images)

    def note_use(self) -> None:
        """Note that there are results, so that the inputs count."""
        if self._lease is not None:
            self._lease.used = True

    @property
    def inference_seconds(self) -> float:
        """Time of the computations so far, in seconds."""
        return self._seconds[1]

    def expect_inputs(self, function: str, inputs: Sequence[Any]) -> None:
        """Note an estimate of the work, before anything is tokenized."""

        def unloaded() -> tuple[float, float]:
            estimates = [Work.estimated(len(some), self.model.estimated_tokens(function, some)) for some in both]
            whole, first = (self.served.batcher.unloaded_seconds(function, each) for each in estimates)
            return whole, first

        both = inputs, inputs[:1]
        self._engine.allowance(self._account).unloaded = unloaded

    def expect_parts(self, function: str, parts: Sequence[Part], steps: int = 0) -> None:
        """Note the work: parts, and so many times `step` of a token of each after it."""

        def unloaded() -> tuple[float, float]:
            batcher, work = self.served.batcher, self.served.batcher.work_of(parts)
            step = batcher.unloaded_seconds("step", Work(work.items, work.items, 1.0)) if steps else 0.0
            whole, first = (batcher.unloaded_seconds(function, each) for each in (work, batcher.work_of(parts[:1])))
            return whole + steps * step, first

        self._engine.allowance(self._account).unloaded = unloaded

    async def prepare(
        self,
        function: str,
        query: Callable[[Any], QueryT],
        inputs: Sequence[Any],
        *,
        images: bool = False,
        queries: Callable[[Sequence[Any]], Sequence[QueryT]] | None = None,
        on_thread: bool = False,
    ) -> list[QueryT]:
        """Return the query of each input; `queries` makes those of several texts faster.

        `on_thread` says that also few short texts are prepared on a thread.

        Raises `QueryError`, `QueueFull` where there is no room for so many inputs, `LimitReached`, `DeadlineExceeded`,
        and the errors of `Computations.run`.
        """
        self.count(inputs, images=images)
        started, served, engine = time.monotonic(), self.served, self._engine
        preparation, computations = engine.resources.preparation, served.batcher.computations
        try:
            accepted = inputs[: engine.settings.max_queue_items]  # more are refused, whatever they cost
            tokens = served.model.estimated_tokens(function, accepted)
            with served.batcher.preparing(function, len(inputs), self.deadline, tokens, self.flow):
                if images:
                    made = await preparation.images(query, inputs, self.deadline, computations)
                else:
                    made = await preparation.texts(
                        query, inputs, self.deadline, computations, queries, on_thread=on_thread
                    )
        except DeadlineExceeded as error:
            allowance = engine.allowance(self._account)
            allowance.preparing = error.preparing
            served.observer.rejected(SHORT_DEADLINE if allowance.too_short else "expired", len(inputs))
            raise
        except QueryError:
            served.observer.rejected("invalid", len(inputs))
            raise
        seconds = time.monotonic() - started
        self._account.preparation_seconds += seconds
        served.observer.tokenized(seconds)
        return made

    async def reserve(self, items: int) -> None:
        """Reserve result items until the answer is sent.

        Raises `OverBudget` where they exceed the whole budget, `DeadlineExceeded` where other requests hold it too
        long.
        """
        await self._reserve(self._engine.resources.results.of(items), items)
        self.reserved += items
        if items > _LARGE_RESULT:
            self._account.at_the_end(self._engine.served_models.heap_trimmer.request)

    async def reserve_decoding(self, size: int) -> None:
        """Reserve so many bytes of the decoding caches until the answer is sent, of the part that completions may have.

        Raises the errors of `reserve`.
        """
        await self._reserve(self._engine.resources.completions, size)
        await self._reserve(self._engine.resources.decoding_cache, size)

    async def _reserve(self, budget: Budget, amount: int) -> None:
        if not budget.try_reserve(amount):
            try:
                await in_time(budget.reserve(amount), max(0.0, self.deadline - time.monotonic()))
            except TimeoutError:
                raise DeadlineExceeded from None
        self._account.at_the_end(budget.release, amount)

    @property
    def decoding_room(self) -> int:
        """The bytes of the decoding caches that completions of all models may have."""
        return self._engine.resources.completions.total

    async def compute(self, function: str, parts: Sequence[Part]) -> list[Any]:
        """Return the outputs of parts; several computations of a request add up. Raises the errors of `submit`."""
        outputs, timing = await self.served.batcher.submit(function, parts, self.deadline, self._urgency, self.flow)
        self.note_use()
        queue, inference = self._seconds = [self._seconds[0] + timing.queue, self._seconds[1] + timing.inference]
        self._account.timing = Timing(queue, inference, timing.batch)
        if self._engine.settings.tracing:
            trace_request(self._account.preparation_seconds, queue, inference, timing.batch)
        return outputs


class Engine:
    """Computes jobs by the served models."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        served_models: ServedModels,
        resources: Resources,
        counters: Counters | None = None,
    ) -> None:
        """`counters` are those of the API keys, by default of this process alone."""
        self.settings, self.metrics, self.served_models, self.resources = settings, metrics, served_models, resources
        self.experiments = Experiments(served_models, metrics)
        self.tenants = Tenants(metrics, counters)
        self._cache: ResultCache | None = None
        if settings.result_cache_mb:
            self._cache = ResultCache(settings.result_cache_mb << 20, metrics.result_cache_bytes.set)
            served_models.on_unload = self.forget_results

    def begin(
        self,
        caller: Caller,
        model: str | None,
        operation: str,
        reads: str = "text",
        *,
        deadline: float | None = None,
        lease: Lease | None = None,
    ) -> Begun:
        """Find the model for an operation and hold it until the answer is sent; raises the errors of `find`.

        `deadline` and `lease` are those of a request which has begun already.
        """
        served = self.served_models.find(model, operation, reads)
        if self.experiments:
            served = self.experiments.answering(served, model, operation, caller)
        caller.account.model = served.manifest.name
        served.hold()
        caller.account.at_the_end(served.release)
        return Begun(self, served, caller, deadline=deadline, lease=lease)

    async def run(self, job: Job) -> Outcome[Any]:
        """Return the results of a job.

        Where the number of result items is known of the model alone, a request for too many is refused before its
        inputs are tokenized. Raises the errors of `begin`, of `find_pair`, and of `Begun`'s functions.
        """
        job = self._with_model(job)
        if job.through is not None:
            return await self._run_through(job, job.through)
        operation = job.operation
        begun = self.begin(job.caller, job.model, operation.name, operation.reads)
        keys = self._keys(job, begun) if self._cache is not None else None
        if self._cache is None or keys is None:
            computed = await self._compute(job, begun, job.inputs)
            return Outcome(begun.served, self._results(job, begun, job.inputs, computed), sum(computed.items))
        begun.count(job.inputs, images=operation.reads == "image")

        async def compute(places: Sequence[int]) -> list[Cached]:
            inputs = [job.inputs[place] for place in places]
            some = await self._compute(job, begun, inputs)
            results = list(self._results(job, begun, inputs, some))
            return [Cached(*pair) for pair in zip(results, some.items, strict=True)]

        account, urgency = job.caller.account, job.caller.urgency
        found, use = await self._cache.results(keys, compute, urgency=urgency, deadline=begun.deadline)
        account.cache = use
        begun.served.observer.used_cache(use.hits, use.collapsed, use.misses)
        begun.note_use()
        items = sum(each.items for each in found)
        await begun.reserve(max(0, items - begun.reserved))
        return Outcome(begun.served, (each.result for each in found), items)

    def forget_results(self, served: ServedModel) -> None:
        """Drop the cached results of a model that has changed."""
        if self._cache is not None:
            self._cache.forget(id(served))

    def _results(self, job: Job, begun: Begun, inputs: Sequence[Any], computed: _Computed) -> Iterable[Any]:
        """Return the results of inputs, which an experiment may compare with those of another model."""
        results = computed.results(begun.served.model)
        if not self.experiments:
            return results
        observed = Observed(
            operation=job.operation,
            inputs=inputs,
            params=job.params,
            items=sum(computed.items),
            seconds=begun.inference_seconds,
        )
        return self.experiments.observed(begun.served, results, observed, job.caller)

    def _with_model(self, job: Job) -> Job:
        """Return a job with the model of its languages, where it names no model and there are several."""
        between, target = job.operation.between_languages, self.settings.default_target_language
        if between is None or job.model is not None:
            return job
        languages = between.asked(job.params)
        if languages[1] is None and target is not None:
            languages = languages[0], target
            job = replace(job, params=between.chosen(job.params, *languages))
        if languages == (None, None) or self.served_models.only_one_offers(job.operation.name):
            return job
        pairs = language_pairs(self.served_models, job.operation, self.settings.pivot_language)
        inputs = job.inputs
        pair = find_pair(pairs, *languages, read=lambda: between.plain(job.params, inputs[0]) if inputs else "")
        params = between.chosen(job.params, None if pair.detected else pair.source, pair.target)
        return replace(job, model=pair.model, params=params, through=pair.through)

    async def _run_through(self, job: Job, through: Through) -> Outcome[Any]:
        """Return the results of a job whose inputs go through a third language: of two computations, one deadline.

        The models and result items of the first one are released before the second one.
        """
        between = job.operation.between_languages
        assert between is not None
        caller, (source, target) = job.caller, between.asked(job.params)
        params = between.chosen(job.params, source, through.written)
        account, lease = Account(), self.tenants.begin(caller.tenant, caller.account)
        try:
            begun = self.begin(replace(caller, account=account), through.model, job.operation.name, lease=lease)
            asked = replace(
                job,
                operation=job.operation.with_query(_first_query(job.operation, params)),
                params=between.first_params(params),
            )
            outcome = await self._computed(asked, begun, partial(_first_result, between, params))
            firsts = await self._all(outcome)
        finally:
            caller.account.take_over(account)
            account.close()
        rest, second_params = iter(firsts), between.chosen(job.params, through.read, target)
        operation = job.operation.with_query(
            lambda model, _, given, most: between.second_query(model, next(rest), given, most),
        )
        second = replace(job, operation=operation, inputs=[each.text for each in firsts], params=second_params)
        begun = self.begin(caller, job.model, job.operation.name, deadline=begun.deadline, lease=lease)
        return await self._computed(second, begun)

    async def _computed(
        self, job: Job, begun: Begun, result: Callable[[Any, Any, Sequence[Any]], Any] = _result
    ) -> Outcome[Any]:
        """Return the results of a step of a job, which are neither cached nor compared with those of other models.

        `result` makes them as that of a model does.
        """
        computed = await self._compute(job, begun, job.inputs)
        return Outcome(begun.served, computed.results(begun.served.model, result), sum(computed.items))

    async def _all(self, outcome: Outcome[Any]) -> list[Any]:
        """Return all results, which are made on another thread where they are many."""
        if outcome.items <= _INLINE_ITEMS:
            return list(outcome.results)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.resources.encoder, list, outcome.results)

    def _keys(self, job: Job, begun: Begun) -> list[Key] | None:
        """Return the key of each input in the cache of results; None where the job does not use it."""
        operation, caller = job.operation, job.caller
        if operation.repeatable is None or not operation.repeatable(job.params) or caller.account.no_store:
            return None
        params = hashlib.blake2b(job.params.__pydantic_serializer__.to_json(job.params), digest_size=32).digest()
        kind = operation.name, operation.reads, operation.variant
        keys = [Key(id(begun.served), caller.tenant, kind, params, each) for each in job.inputs]
        try:
            hash(tuple(keys))
        except TypeError:  # an input that is a list
            return None
        return keys

    async def _compute(self, job: Job, begun: Begun, inputs: Sequence[Any]) -> "_Computed":
        """Compute the outputs of inputs, and reserve their result items."""
        operation, params = job.operation, job.params
        function = operation.function_of(begun.model, params)
        begun.expect_inputs(function, inputs)
        items: list[int] | None = None
        if operation.result_items is not None:
            items = [operation.result_items(begun.served.model, params)] * len(inputs)
            if operation.counts_parts is not None and operation.counts_parts(params):
                items = None
            else:
                await begun.reserve(sum(items))
        query, several, model, most = operation.query, operation.queries, begun.model, self.settings.max_queue_items
        queries = await begun.prepare(
            function,
            lambda each: query(model, each, params, most),
            inputs,
            images=operation.reads == "image",
            queries=None if several is None else lambda some: several(model, some, params),
            on_thread=operation.slowly_prepared is not None and operation.slowly_prepared(params),
        )
        if items is None:
            items = [each.result_items for each in queries]
            await begun.reserve(sum(items))
        parts = [each.parts() for each in queries]
        together = [part for some in parts for part in some]
        begun.expect_parts(function, together)
        outputs = await begun.compute(function, together)
        return _Computed(queries, [len(some) for some in parts], outputs, items)

    def deadline(self, caller: Caller) -> float:
        """Return the deadline on the clock of `time.monotonic`: that of the caller, or the default."""
        settings, stated = self.settings, caller.timeout_ms
        seconds = min(stated or settings.request_timeout_ms, settings.max_request_timeout_ms) / 1000
        caller.account.allowance = Allowance(seconds, stated=bool(stated))
        return time.monotonic() + seconds

    @staticmethod
    def allowance(account: Account) -> Allowance:
        """Return the time that a request has; it is known once its model is found."""
        assert account.allowance is not None
        return account.allowance


def _first_result(
    between: BetweenLanguages[Any, Any, Any], params: Params, model: Any, query: Any, outputs: Sequence[Any]
) -> Any:
    return between.first(model, query, outputs, params)


def _first_query(operation: AnyOperation, params: Params) -> Callable[[Any, Any, Any, int | None], Any]:
    """Return how the queries of the first step through a third language are made; `params` are those asked for."""
    between = operation.between_languages
    assert between is not None

    def query(model: Any, each: Any, given: Any, most: int | None) -> Any:
        return between.first_query(model, operation.query(model, each, given, most), params)

    return query
