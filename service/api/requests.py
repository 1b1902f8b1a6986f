"""Types of request fields, and the steps of a request to a model: find, prepare, reserve, note."""

import asyncio
import contextlib
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request
from fastapi.exceptions import RequestValidationError
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from models import QueryError
from models.operations.operation import Text, Truncate
from models.tasks.model import Part
from service.auth import tenant_of
from service.engine.allowance import SHORT_DEADLINE, Allowance
from service.engine.batcher import DeadlineExceeded, Timing, Work
from service.engine.preparation import Preparation
from service.engine.queue import DEFAULT_URGENCY
from service.engine.registry import Registry
from service.engine.resources import Resources
from service.engine.served_model import ServedModel
from service.errors import ALLOWANCE
from service.settings import Settings
from service.tracing import trace_request
from service.validation import errors_of

__all__ = [
    "TIMEOUT_HEADER",
    "Body",
    "Deadline",
    "ModelName",
    "OneOrSeveralTexts",
    "Priority",
    "Text",
    "Texts",
    "Truncate",
    "deadline_of",
    "examples",
    "find",
    "model_of",
    "note_parts",
    "note_timing",
    "note_work",
    "queries_of",
    "reserve_results",
    "resources_of",
    "server_timing",
    "timeout_of",
    "types_of",
    "urgency_of",
]

QueryT = TypeVar("QueryT")


_LARGE_RESULT = 10_000
"""Result items after which freed memory is returned to the operating system."""


class _FailFast(FailFast):
    """Stop at the first wrong item of a list. Hashable, so that the annotation can be part of a union."""

    __hash__ = object.__hash__


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise ValueError("must be a text or a list of texts")
    return value


def types_of(values: Iterable[object]) -> set[type]:
    """Return the types of values, which may be many: it takes some 20 ns for each."""
    return set(map(type, values))


Texts = Annotated[
    list[Text],
    _FailFast(),
    BeforeValidator(_as_list),
    Field(min_length=1),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        mode="validation",
    ),
]
"""One text or a list of them, as a list."""
_TEXTS: TypeAdapter[list[str]] = TypeAdapter(Texts)


def _one_or_several(value: object) -> str | list[str]:
    texts = _TEXTS.validate_python(value)
    return texts[0] if isinstance(value, str) else texts


OneOrSeveralTexts = Annotated[str | list[str], PlainValidator(_one_or_several)]
"""One text or a list of them, as it came."""

ModelName = Annotated[
    Text | None,
    Field(description='Such as "next-word" or "next-word:2"; optional where one model serves the task.'),
]
TIMEOUT_HEADER = "X-Request-Timeout-Ms"
_TIMEOUT_NAME = TIMEOUT_HEADER.lower().encode()
Timeout = Annotated[int, Field(ge=1)]
_TIMEOUT: TypeAdapter[int] = TypeAdapter(Timeout)
Deadline = Annotated[Timeout | None, Header(alias=TIMEOUT_HEADER, description="Deadline in milliseconds.")]

Priority = Annotated[
    str | None, Header(description="Urgency (RFC 9218): u=0 goes first, u=7 last, u=3 is that of requests without one.")
]
_URGENCY = re.compile(r"(?:^|,)[ \t]*u=([0-7])[ \t]*(?:$|[,;])")


class Body(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


def examples(*bodies: dict[str, Any]) -> ConfigDict:
    """Return the configuration of a request model with example bodies, which the OpenAPI document shows."""
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


def resources_of(request: Request) -> contextlib.ExitStack:
    """Return the stack of resources that are released once the answer to the request is sent."""
    state = request.scope["state"]
    if "resources" not in state:
        state["resources"] = contextlib.ExitStack()
        state["release"] = state["resources"].close  # the middleware calls it
    resources: contextlib.ExitStack = state["resources"]
    return resources


def find(request: Request, name: str | None, operation: str, reads: str) -> ServedModel:
    """Find the model of a request and hold it until the answer is sent; metrics of the request name it."""
    registry: Registry = request.app.state.registry
    served = registry.find(name, operation, reads)
    request.state.model = served.manifest.name
    served.hold()
    resources_of(request).callback(served.release)
    return served


def model_of(request: Request, served: ServedModel) -> Any:
    """Return the model that makes the queries of a request: its cache holds what this API key has asked."""
    settings: Settings = request.app.state.settings
    tenant = "" if settings.share_prefix_cache else tenant_of(request)
    return served.model.with_cache_salt(tenant) if tenant else served.model


async def reserve_results(request: Request, items: int, deadline: float) -> None:
    """Reserve the result items of a request until its answer is sent.

    Raises `OverBudget` where they exceed the whole budget, `DeadlineExceeded` where other requests hold it too
    long.
    """
    shared: Resources = request.app.state.resources
    budget = shared.results.of(items)
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            await budget.reserve(items)
    except TimeoutError:
        raise DeadlineExceeded from None
    resources_of(request).callback(budget.release, items)
    if items > _LARGE_RESULT:
        resources_of(request).callback(request.app.state.registry.heap_trimmer.request)


async def queries_of(
    request: Request,
    served: ServedModel,
    operation: str,
    query: Callable[[str], QueryT],
    inputs: Sequence[str],
    deadline: float,
    *,
    images: bool = False,
) -> tuple[list[QueryT], float]:
    """Return the query of each input, and the seconds that it took to tokenize the texts or decode the images.

    Raises `QueryError`, `QueueFull` where there is no room for so many inputs, `DeadlineExceeded`, and the errors of
    `Computations.run`.
    """
    started = time.monotonic()
    preparation: Preparation = request.app.state.resources.preparation
    prepare = preparation.images if images else preparation.texts
    try:
        accepted = inputs[: request.app.state.settings.max_queue_items]  # more are refused, whatever they cost
        tokens = served.model.estimated_tokens(operation, accepted)
        with served.batcher.preparing(operation, len(inputs), deadline, tokens):
            queries = await prepare(query, inputs, deadline, served.batcher.computations)
    except DeadlineExceeded as error:
        allowance = _allowance(request)
        allowance.preparing = error.preparing
        short = allowance.too_short
        served.observer.rejected(SHORT_DEADLINE if short else "expired", len(inputs))
        raise
    except QueryError:
        served.observer.rejected("invalid", len(inputs))
        raise
    seconds = time.monotonic() - started
    served.observer.tokenized(seconds)
    return queries, seconds


def deadline_of(request: Request, timeout_ms: int | None) -> float:
    """Return the deadline on the clock of `time.monotonic`: that of the request, or the default."""
    settings: Settings = request.app.state.settings
    seconds = min(timeout_ms or settings.request_timeout_ms, settings.max_request_timeout_ms) / 1000
    request.scope["state"][ALLOWANCE] = Allowance(seconds, stated=bool(timeout_ms))
    return time.monotonic() + seconds


def _allowance(request: Request) -> Allowance:
    allowance: Allowance = request.scope["state"].setdefault(ALLOWANCE, Allowance(math.inf, stated=False))
    return allowance


def note_work(request: Request, served: ServedModel, operation: str, inputs: Sequence[Any]) -> None:
    """Note what is to be computed for a request that has a deadline, as an estimate: nothing is tokenized yet."""

    def unloaded() -> tuple[float, float]:
        estimates = [Work.estimated(len(some), served.model.estimated_tokens(operation, some)) for some in both]
        whole, first = (served.batcher.unloaded_seconds(operation, each) for each in estimates)
        return whole, first

    both = inputs, inputs[:1]
    _allowance(request).unloaded = unloaded


def note_parts(request: Request, served: ServedModel, operation: str, parts: Sequence[Part], steps: int = 1) -> None:
    """Note what is to be computed for a request that has a deadline: parts, each in so many steps.

    Steps after the first one read a token of each part.
    """

    def unloaded() -> tuple[float, float]:
        batcher, work = served.batcher, served.batcher.work_of(parts)
        step = batcher.unloaded_seconds(operation, Work(work.items, work.items, 1.0)) if steps > 1 else 0.0
        whole, first = (batcher.unloaded_seconds(operation, each) for each in (work, batcher.work_of(parts[:1])))
        return whole + (steps - 1) * step, first

    _allowance(request).unloaded = unloaded


def timeout_of(request: Request) -> int | None:
    """Return the deadline that a header states, in milliseconds; raises `RequestValidationError`."""
    header = dict(request.scope["headers"]).get(_TIMEOUT_NAME)
    if header is None:
        return None
    try:
        return _TIMEOUT.validate_python(header.decode("latin-1"))
    except ValidationError as error:
        raise RequestValidationError(errors_of(error, "header", TIMEOUT_HEADER)) from None


def urgency_of(priority: str | None) -> int:
    """Return the urgency that the header states; malformed headers are ignored (RFC 9218, section 4)."""
    found = _URGENCY.search(priority or "")
    return int(found[1]) if found else DEFAULT_URGENCY


def note_timing(request: Request, tokenized: float, timing: Timing) -> None:
    """Keep the durations of the steps, for the answer, the access log and spans."""
    request.state.tokenized, request.state.timing = tokenized, timing
    if request.app.state.settings.tracing:
        trace_request(tokenized, timing)


def server_timing(request: Request) -> dict[str, str]:
    """Return the header `Server-Timing` (W3C), in milliseconds; none where no model was run."""
    state = request.scope["state"]
    timing: Timing | None = state.get("timing")
    if timing is None:
        return {}
    queue, tokenize, infer = 1000 * timing.queue, 1000 * state["tokenized"], 1000 * timing.inference
    return {"Server-Timing": f"queue;dur={queue:.3f}, tokenize;dur={tokenize:.3f}, infer;dur={infer:.3f}"}
