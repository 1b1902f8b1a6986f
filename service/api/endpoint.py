"""The path of a request from its body to its answer, the same for every endpoint that runs a model."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastapi import Request

from models.operations.operation import AnyOperation, Params, Record
from models.registry import Registry
from service.api.answer import Answer
from service.api.requests import (
    deadline_of,
    find,
    model_of,
    note_parts,
    note_timing,
    note_work,
    queries_of,
    reserve_results,
    urgency_of,
)

__all__ = ["ENDPOINTS", "answer", "register", "results_of", "run_operation"]

ENDPOINTS: Registry[Any] = Registry("service.api.v1", "endpoints", group="softserve.service.tasks")
"""Routers: that of the operations of all tasks, and entry points of other distributions."""

PartT = TypeVar("PartT")

register = ENDPOINTS.register
"""Register a router: `register("text-embedding")(router)`."""


async def run_operation(
    request: Request,
    operation: AnyOperation,
    inputs: Sequence[Any],
    params: Params,
    *,
    model: str | None,
    timeout_ms: int | None,
    priority: str | None,
) -> Answer[Record]:
    """Return the records of an operation's results; raises the errors of `answer`."""
    return await results_of(
        request,
        operation,
        inputs,
        params,
        model=model,
        timeout_ms=timeout_ms,
        priority=priority,
        result=lambda result: operation.record_of(result, params),
    )


async def results_of(
    request: Request,
    operation: AnyOperation,
    inputs: Sequence[Any],
    params: Params,
    *,
    model: str | None,
    timeout_ms: int | None,
    priority: str | None,
    result: Callable[[Any], PartT] = lambda result: result,
) -> Answer[PartT]:
    """Return an operation's results, or what `result` makes of them; raises the errors of `answer`."""
    items, computed_by = operation.result_items, operation.computed_by
    most_parts: int = request.app.state.settings.max_queue_items
    return await answer(
        request,
        operation.name,
        inputs,
        lambda model, each: operation.query(model, each, params, most_parts),
        result,
        model=model,
        timeout_ms=timeout_ms,
        priority=priority,
        reads=operation.reads,
        items_per_input=None if items is None else lambda model: items(model, params),
        batches=None if computed_by is None else computed_by(params),
    )


async def answer(
    request: Request,
    operation: str,
    inputs: Sequence[str],
    query: Callable[[Any, str], Any],
    result: Callable[[Any], PartT],
    *,
    model: str | None,
    timeout_ms: int | None,
    priority: str | None,
    reads: str = "text",
    items_per_input: Callable[[Any], int] | None = None,
    batches: str | None = None,
) -> Answer[PartT]:
    """Compute the results of a request by the model that offers an operation, or by another one of its `batches`.

    `query` makes a query of the model and an input, `result` makes a part of the answer of a result of the model.
    `items_per_input` returns the largest number of result items of one input, where that is known of the model before
    any query is made: so a request with too many is refused before its inputs are tokenized.

    Raises the errors of `find`, `queries_of`, `reserve_results` and `Batcher.submit`.
    """
    served = find(request, model, operation, reads)
    operation = batches or operation
    deadline = deadline_of(request, timeout_ms)
    note_work(request, served, operation, inputs)
    items = 0
    if items_per_input is not None:
        items = len(inputs) * items_per_input(served.model)
        await reserve_results(request, items, deadline)
    made_by = model_of(request, served)
    queries, prepared = await queries_of(
        request,
        served,
        operation,
        lambda each: query(made_by, each),
        inputs,
        deadline,
        images=reads == "image",
    )
    if items_per_input is None:
        items = sum(each.result_items for each in queries)
        await reserve_results(request, items, deadline)
    parts = [each.parts() for each in queries]
    together = [part for some in parts for part in some]
    note_parts(request, served, operation, together)
    outputs, timing = await served.batcher.submit(operation, together, deadline, urgency_of(priority))
    note_timing(request, prepared, timing)
    rest = iter(outputs)
    results = (
        result(served.model.result(each, list(itertools.islice(rest, len(some)))))
        for each, some in zip(queries, parts, strict=True)
    )
    return Answer(served, results, items)
