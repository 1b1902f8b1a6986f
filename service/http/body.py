"""Request bodies of model endpoints: read within a budget, parsed and checked in bounded time."""

import codecs
import contextlib
import gc
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from models.operations.validation import FieldError, errors_of, shown_name
from service.engine.budget import BodyReservation
from service.engine.caller import Caller
from service.engine.client import Engine
from service.engine.started import in_time
from service.http.auth import KEY_HEADERS, needs_body_key
from service.http.errors import MAX_ERRORS, ClientDisconnected
from service.http.requests import caller_of, engine_of

__all__ = ["checked_body", "read_body", "read_scope_body", "reserve_body"]

BodyT = TypeVar("BodyT", bound=BaseModel)

_SMALL_BODY = 1 << 16
"""Bytes up to which bodies do not count: a connection buffers as many."""
_STEP = 1 << 16
"""Bytes by which a reservation grows with a body."""

_STRUCTURE = b'"[{:,'
_OTHERS = bytes(set(range(256)).difference(_STRUCTURE))
_WEIGHTS = {b",": 1, b"[": 1, b":": 2, b"{": 4}
"""How long a value takes to be parsed that this character goes before, about 0.15 us for each unit."""


def _as_received(content: bytes) -> Iterable[bytes]:
    return (content,)


async def read_body(request: Request, decode: Callable[[bytes], Iterable[bytes]] = _as_received) -> bytes:
    """Read the body; a large one reserves its bytes as they arrive, and the client cannot send more while it waits.

    `decode` turns received bytes into parts of the body, each of which is reserved before the next one is made.
    Raises `ClientDisconnected`, `HTTPException` where other requests hold the memory until the deadline, or for a large
    body in which the key is still to be found, and the errors of `decode`.
    """
    room, length, more = _Room(lambda: (engine_of(request), caller_of(request))), 0, True
    parts: list[bytes] = []
    most = _SMALL_BODY if needs_body_key(request) else math.inf
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        for part in decode(message.get("body", b"")):
            length += len(part)
            if length > most:
                raise HTTPException(
                    413, f"a body of more than {_SMALL_BODY} bytes needs its key in a header: {KEY_HEADERS}"
                )
            if length > _SMALL_BODY:
                await room.extend(length)
            parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


async def read_scope_body(scope: Scope, receive: Receive) -> bytes:
    """Read the body of a request to an ASGI application, as `read_body` does."""
    return await read_body(Request(scope, receive))


async def reserve_body(engine: Engine, caller: Caller, length: int) -> None:
    """Reserve the bytes of a body that has arrived; raises `HTTPException` as `read_body` does."""
    if length > _SMALL_BODY:
        await _Room(lambda: (engine, caller)).extend(length)


class _Room:
    """The memory for the body of a request, which is released once the answer is sent."""

    def __init__(self, asked: Callable[[], tuple[Engine, Caller]]) -> None:
        """`asked` returns who needs it, and of which engine; small bodies never ask."""
        self._asked = asked
        self._length, self._deadline, self._most = 0, 0.0, 0
        self._reserved: BodyReservation | None = None

    async def extend(self, length: int) -> None:
        """Reserve memory for so many bytes in all."""
        if length <= self._length:
            return
        reserved = self._reserved = self._reserved or self._begin()
        longer = min(-(-length // _STEP) * _STEP, self._most)
        try:
            await in_time(reserved.extend(longer - self._length), max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            reserved.release()
            self._asked()[0].metrics.rejected.labels("", "", "overloaded").inc()
            raise HTTPException(
                429, "the bodies of other requests take the memory for bodies", {"Retry-After": "1"}
            ) from None
        self._length = longer

    def _begin(self) -> BodyReservation:
        engine, caller = self._asked()
        reserved, account = BodyReservation(engine.resources.bodies), caller.account
        self._deadline, self._most = engine.deadline(caller), engine.settings.max_body_bytes
        account.at_the_end(engine.served_models.heap_trimmer.request)
        account.at_the_end(reserved.release)
        return reserved


def checked_body(model: type[BodyT], content: bytes, content_type: str, max_values: int) -> BodyT:
    """Parse a body and validate it; a large one has at most about `max_values` values.

    Raises `RequestValidationError`, `HTTPException`.
    """
    with contextlib.nullcontext() if len(content) <= _SMALL_BODY else _paused_collection():
        wrong: list[FieldError] = []
        body = _parsed(content, content_type, max_values)
        if isinstance(body, dict) and model.model_config.get("extra") == "forbid":
            # pydantic would make an error of every unknown field.
            known = model.__pydantic_fields__
            if not body.keys() <= known.keys():
                wrong = _unknown(body, list(known))
                body = {name: body[name] for name in known if name in body}
        try:
            checked: BodyT = model.__pydantic_validator__.validate_python(body)
        except ValidationError as error:
            wrong += errors_of(error, "body")
        del body  # or the error's traceback would hold it until the answer is sent
    if wrong:
        raise RequestValidationError(wrong)
    return checked


def _unknown(body: dict[str, object], known: Sequence[str]) -> list[FieldError]:
    """Return the errors of unknown fields, the first of which names the known ones."""
    names = itertools.islice((name for name in body if name not in known), MAX_ERRORS)
    wrong: list[FieldError] = [{"type": "extra_forbidden", "loc": ("body", name), "ctx": {}} for name in names]
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


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
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
