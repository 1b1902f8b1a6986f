"""The interface of the engine: a job in, its outcome out, the same for every protocol."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from models import QueryError
from models.operations.operation import AnyOperation, BetweenLanguages, Params
from models.operations.query import Part
from service.engine.allowance import SHORT_DEADLINE, Allowance
from service.engine.batcher import DeadlineExceeded, Timing, Work
from service.engine.caller import Account, Caller
from service.engine.languages import Through, find_pair, language_pairs
from service.engine.resources import Resources
from service.engine.served_model import ServedModel
from service.engine.served_models import ServedModels
from service.engine.shared_counters import Counters
from service.engine.started import in_time
from service.engine.tenants import Tenants
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


class Begun:
    """A request whose model is found and held: its inputs are prepared, and its parts computed, step by step."""

    def __init__(self, engine: "Engine", served: ServedModel, caller: Caller, deadline: float | None = None) -> None:
        self.served, self.model = served, served.model
        self._engine, self._account = engine, caller.account
        earlier = caller.account.timing
        self._urgency = caller.urgency
        self._seconds = [0.0, 0.0] if earlier is None else [earlier.queue, earlier.inference]
        self.flow = engine.tenants.flow_of(caller.tenant)
        """The requests of the same API key, which share the model with those of others."""
        self._lease = engine.tenants.begin(caller.tenant, caller.account)
        if caller.tenant and not engine.settings.share_prefix_cache:
            self.model = served.model.with_cache_salt(caller.tenant)
        self.deadline = engine.deadline(caller) if deadline is None else deadline

    def count(self, inputs: Sequence[Any], *, images: bool = False) -> None:
        """Count inputs against the limits of the API key, the first time; raises `LimitReached`."""
        if self._lease is not None:
            self._lease.take(inputs, images=images)

    def expect_inputs(self, function: str, inputs: Sequence[Any]) -> None:
        """Note an estimate of the work, before anything is tokenized."""

        def unloaded() -> tuple[float, float]:
            estimates = [Work.estimated(len(some), self.model.estimated_tokens(function, some)) for some in both]
            whole, first = (self.served.batcher.unloaded_seconds(function, each) for each in estimates)
            return whole, first

        both = inputs, inputs[:1]
        self._engine.allowance(self._account).unloaded = unloaded

    def expect_parts(self, function: str, parts: Sequence[Part], steps: int = 1) -> None:
        """Note the work: parts, each computed in so many steps.

        Steps after the first one read a token of each part.
        """

        def unloaded() -> tuple[float, float]:
            batcher, work = self.served.batcher, self.served.batcher.work_of(parts)
            step = batcher.unloaded_seconds(function, Work(work.items, work.items, 1.0)) if steps > 1 else 0.0
            whole, first = (batcher.unloaded_seconds(function, each) for each in (work, batcher.work_of(parts[:1])))
            return whole + (steps - 1) * step, first

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
        budget, account = self._engine.resources.results.of(items), self._account
        if not budget.try_reserve(items):
            try:
                await in_time(budget.reserve(items), max(0.0, self.deadline - time.monotonic()))
            except TimeoutError:
                raise DeadlineExceeded from None
        account.at_the_end(budget.release, items)
        if items > _LARGE_RESULT:
            account.at_the_end(self._engine.served_models.heap_trimmer.request)

    async def compute(self, function: str, parts: Sequence[Part]) -> list[Any]:
        """Return the outputs of parts; several computations of a request add up. Raises the errors of `submit`."""
        outputs, timing = await self.served.batcher.submit(function, parts, self.deadline, self._urgency, self.flow)
        if self._lease is not None:
            self._lease.used = True
        queue, inference = self._seconds = [self._seconds[0] + timing.queue, self._seconds[1] + timing.inference]
        self._account.timing = Timing(queue, inference, timing.batch)
        if self._engine.settings.tracing:
            trace_request(self._account.preparation_seconds, queue, inference, timing.batch)
        return outputs


def _result(model: Any, query: Any, outputs: Sequence[Any]) -> Any:
    return model.result(query, outputs)


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
        self.tenants = Tenants(metrics, counters)

    def begin(
        self,
        caller: Caller,
        model: str | None,
        operation: str,
        reads: str = "text",
        deadline: float | None = None,
    ) -> Begun:
        """Find the model for an operation and hold it until the answer is sent; raises the errors of `find`.

        `deadline` is that of a request which has begun already.
        """
        served = self.served_models.find(model, operation, reads)
        caller.account.model = served.manifest.name
        served.hold()
        caller.account.at_the_end(served.release)
        return Begun(self, served, caller, deadline)

    async def run(self, job: Job) -> Outcome[Any]:
        """Return the results of a job.

        Where the number of result items is known of the model alone, a request for too many is refused before its
        inputs are tokenized. Raises the errors of `begin`, of `find_pair`, and of `Begun`'s functions.
        """
        job = self._with_model(job)
        if job.through is not None:
            return await self._run_through(job, job.through)
        begun = self.begin(job.caller, job.model, job.operation.name, job.operation.reads)
        return await self._run(begun, job)

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
        account = Account()
        try:
            begun = self.begin(replace(caller, account=account), through.model, job.operation.name)
            asked = replace(
                job,
                operation=job.operation.with_query(_first_query(job.operation, params)),
                params=between.first_params(params),
            )
            outcome = await self._run(begun, asked, partial(_first_result, between, params))
            firsts = await self._all(outcome)
        finally:
            caller.account.take_over(account)
            account.close()
        rest, second_params = iter(firsts), between.chosen(job.params, through.read, target)
        operation = job.operation.with_query(
            lambda model, _, given, most: between.second_query(model, next(rest), given, most),
        )
        second = replace(job, operation=operation, inputs=[each.text for each in firsts], params=second_params)
        begun = self.begin(caller, job.model, job.operation.name, deadline=begun.deadline)
        return await self._run(begun, second)

    async def _all(self, outcome: Outcome[Any]) -> list[Any]:
        """Return all results, which are made on another thread where they are many."""
        if outcome.items <= _INLINE_ITEMS:
            return list(outcome.results)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.resources.encoder, list, outcome.results)

    async def _run(
        self, begun: Begun, job: Job, result: Callable[[Any, Any, Sequence[Any]], Any] = _result
    ) -> Outcome[Any]:
        """Return the results of a job, which `result` makes of the model, a query and its outputs."""
        operation, params, inputs = job.operation, job.params, job.inputs
        function = operation.function_of(begun.model, params)
        begun.expect_inputs(function, inputs)
        items = None
        if operation.result_items is not None:
            items = len(inputs) * operation.result_items(begun.served.model, params)
            if operation.counts_parts is not None and operation.counts_parts(params):
                items = None
            else:
                await begun.reserve(items)
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
            items = sum(each.result_items for each in queries)
            await begun.reserve(items)
        parts = [each.parts() for each in queries]
        together = [part for some in parts for part in some]
        begun.expect_parts(function, together)
        rest = iter(await begun.compute(function, together))
        results = (
            result(begun.served.model, each, list(itertools.islice(rest, len(some))))
            for each, some in zip(queries, parts, strict=True)
        )
        return Outcome(begun.served, results, items)

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
