"""Request bodies of model endpoints: read within a budget, parsed and checked in bounded time."""

import asyncio
import codecs
import contextlib
import gc
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
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
from service.validation import errors_of, shown_name

__all__ = ["checked_body", "read_body", "reserve_body", "reserve_declared_body"]

BodyT = TypeVar("BodyT", bound=BaseModel)

_SMALL_BODY = 1 << 16
"""Bytes up to which bodies do not count: a connection buffers as many."""

_STRUCTURE = b'"[{:,'
_OTHERS = bytes(set(range(256)).difference(_STRUCTURE))
_WEIGHTS = {b",": 1, b"[": 1, b":": 2, b"{": 4}
"""How long a value takes to be parsed that this character goes before, about 0.15 us for each unit."""


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


def checked_body(model: type[BodyT], content: bytes, content_type: str, max_values: int) -> BodyT:
    """Parse a body and validate it; a large one has at most about `max_values` values.

    Raises `RequestValidationError`, `HTTPException`.
    """
    with _paused_collection():
        body, wrong = _parsed(content, content_type, max_values), []
        if isinstance(body, dict) and model.model_config.get("extra") == "forbid":
            # pydantic would make an error of every unknown field.
            wrong = _unknown(body, list(model.model_fields))
            if wrong:
                body = {name: body[name] for name in model.model_fields if name in body}
        try:
            checked = model.model_validate(body)
        except ValidationError as error:
            wrong += errors_of(error, "body")
        del body  # or the error's traceback would hold it until the answer is sent
    if wrong:
        raise RequestValidationError(wrong)
    return checked


def _unknown(body: dict[str, Any], known: Sequence[str]) -> list[dict[str, Any]]:
    """Return the errors of unknown fields, the first of which names the known ones."""
    names = itertools.islice((name for name in body if name not in known), MAX_ERRORS)
    wrong: list[dict[str, Any]] = [{"type": "extra_forbidden", "loc": ("body", name), "ctx": {}} for name in names]
    for first in wrong[:1]:
        first["ctx"]["known"] = known
    return wrong


def _parsed(content: bytes, content_type: str, max_values: int) -> object:
    """Return a body as JSON if it says that it is, else as it came, which no model accepts; None for no body."""
    if not content:
        return None
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return content
    if len(content) > _SMALL_BODY and _has_more_values(content, max_values):
        raise HTTPException(
            413, f"the body holds more than the {max_values} texts, numbers, lists and fields that this service accepts"
        )
    try:
        return _DECODER.decode(content.removeprefix(codecs.BOM_UTF8).decode())
    except json.JSONDecodeError as error:
        raise HTTPException(400, f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"the body is not UTF-8 from byte {error.start} on") from None
    except RecursionError:
        raise HTTPException(400, "the body is nested too deeply") from None
    except ValueError:
        raise HTTPException(400, "the body holds a number of too many digits") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raises `HTTPException` for one with a name twice, which parsers understand differently."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        ((twice, _),) = counts.most_common(1)
        raise HTTPException(400, f"the body has the field {shown_name(twice)} twice in one object")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _has_more_values(content: bytes, most: int) -> bool:
    """Return whether JSON has more values than that, without parsing it, which would hold the interpreter lock."""
    if _weight(content) <= most:
        return False
    bare = content.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    if bare.count(b'"') > 2 * most:
        return True
    return _weight(b"".join(bare.split(b'"')[::2])) > most  # without the contents of texts


def _weight(content: bytes) -> int:
    return sum(weight * content.count(character) for character, weight in _WEIGHTS.items())


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
