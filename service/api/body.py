"""Request bodies of model endpoints: read within a budget, parsed and checked in bounded time."""

import asyncio
import contextlib
import gc
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from service.api.requests import resources_of
from service.engine.budget import Budget
from service.engine.queue import QueueFull
from service.errors import MAX_ERRORS
from service.settings import Settings

__all__ = ["checked_body", "read_body", "reserve_body", "reserve_declared_body"]

BodyT = TypeVar("BodyT", bound=BaseModel)

_SMALL_BODY = 1 << 16
"""Bytes up to which bodies do not count: a connection buffers as many."""

_UNKNOWN_FIELD: Mapping[str, Any] = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}


async def read_body(request: Request) -> bytes:
    """Read the body; a large one waits until there is room for it, and until then the client cannot send it.

    Raises `QueueFull` where others take the room for too long, `HTTPException` where the client disconnects.
    """
    await reserve_declared_body(request)
    parts, more = [], True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "the client left before the end of the body")
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def reserve_declared_body(request: Request) -> None:
    """Wait until there is room for the body of a request, as long as it says to be; raises `QueueFull`."""
    most = request.app.state.settings.max_body_bytes
    declared = dict(request.scope["headers"]).get(b"content-length", b"")
    await reserve_body(request, min(int(declared) if declared.isdigit() else most, most))


async def reserve_body(request: Request, length: int) -> None:
    """Wait until there is room for a body; raises `QueueFull` where others take it for too long."""
    if length <= _SMALL_BODY:
        return
    settings: Settings = request.app.state.settings
    bodies: Budget = request.app.state.resources.bodies
    try:
        async with asyncio.timeout(settings.request_timeout_ms / 1000):
            await bodies.reserve(length)
    except TimeoutError:
        raise QueueFull(never=False, retry_after=1) from None
    resources_of(request).callback(bodies.release, length)
    resources_of(request).callback(request.app.state.registry.heap_trimmer.request)


def checked_body(model: type[BodyT], content: bytes, content_type: str) -> BodyT:
    """Parse a body and validate it; raises `RequestValidationError`, `HTTPException`."""
    with _paused_collection():
        body, wrong = _parsed(content, content_type), []
        if isinstance(body, dict) and model.model_config.get("extra") == "forbid":
            # pydantic would make an error of every unknown field.
            unknown = (name for name in body if name not in model.model_fields)
            wrong = [{**_UNKNOWN_FIELD, "loc": ("body", name)} for name in itertools.islice(unknown, MAX_ERRORS)]
            if wrong:
                body = {name: body[name] for name in model.model_fields if name in body}
        try:
            checked = model.model_validate(body)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            wrong += [{**each, "loc": ("body", *each["loc"])} for each in found]
        del body  # or the error's traceback would hold it until the answer is sent
    if wrong:
        raise RequestValidationError(wrong)
    return checked


def _parsed(content: bytes, content_type: str) -> object:
    """Return a body as JSON if it says that it is, else as it came, which no model accepts; None for no body."""
    if not content:
        return None
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return content
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        context = {"error": error.msg}
        found = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error", "ctx": context}
        raise RequestValidationError([found]) from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "There was an error parsing the body") from error


@contextlib.contextmanager
def _paused_collection() -> Iterator[None]:
    """Keep the garbage collector from walking, again and again, through the many objects that a parser makes."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
