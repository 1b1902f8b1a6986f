"""The path of a request from its body to its answer, the same for every endpoint that runs a model."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from fastapi import Request

from models.operations.operation import AnyOperation, Operation, Params, Record
from models.registry import Registry
from service.engine.client import Job, Outcome
from service.http.requests import caller_of, engine_of

__all__ = ["ENDPOINTS", "answer", "register"]

ENDPOINTS: Registry[Any] = Registry("service.http.v1", "endpoints", group="softserve.service.tasks")
"""Routers: that of the operations of all tasks, and entry points of other distributions."""

PartT = TypeVar("PartT")

register = ENDPOINTS.register
"""Register a router: `register("text-embedding")(router)`."""


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
    reads: Literal["text", "image"] = "text",
    items_per_input: Callable[[Any], int] | None = None,
    batches: str | None = None,
) -> Outcome[PartT]:
    """Compute the results of a request by the model that offers an operation, or by another one of its `batches`.

    For routers of packages whose tasks list no operations; those that list them need no router. `query` makes a query
    of the model and an input, `result` makes a part of the answer of a result of the model. `items_per_input` returns
    the largest number of result items of one input. Raises the errors of `Engine.run`.
    """
    warnings.warn("list the operation in the model class: it has an endpoint then", DeprecationWarning, stacklevel=2)
    asked: AnyOperation = Operation(
        name=operation,
        summary="",
        about="",
        query=lambda loaded, each, params, most: query(loaded, each),
        params=Params,
        record=Record,
        reads=reads,
        result_items=None if items_per_input is None else lambda loaded, params: items_per_input(loaded),
        computed_by=lambda params: batches or operation,
    )
    caller = caller_of(request, timeout_ms, priority)
    job = Job(operation=asked, inputs=inputs, params=Params(), model=model, caller=caller)
    found = await engine_of(request).run(job)
    return replace(found, results=map(result, found.results))
