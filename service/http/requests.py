"""Types of request fields, and who asks: deadline, urgency and key of a request."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

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

from models.operations.operation import Text, Truncate
from models.operations.validation import errors_of
from service.engine.caller import Caller
from service.engine.client import Engine
from service.engine.queue import DEFAULT_URGENCY
from service.http.accounts import account_of
from service.http.auth import tenant_of

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
    "caller_of",
    "engine_of",
    "examples",
    "parsed_timeout",
    "server_timing",
    "timeout_of",
    "types_of",
    "urgency_of",
]


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
CANARY_HEADER = "X-Canary"
"""Header of requests that one of two models must answer while a canary runs: `primary` or `candidate`."""
_TIMEOUT_NAME, _CANARY_NAME = TIMEOUT_HEADER.lower().encode(), CANARY_HEADER.lower().encode()
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


def examples(*bodies: Mapping[str, Any]) -> ConfigDict:
    """Return the configuration of a request model with example bodies, which the OpenAPI document shows."""
    return ConfigDict(json_schema_extra={"examples": [dict(each) for each in bodies]})


def timeout_of(headers: Mapping[bytes, bytes]) -> int | None:
    """Return the deadline that a header states, in milliseconds; raises `RequestValidationError`."""
    header = headers.get(_TIMEOUT_NAME)
    return None if header is None else parsed_timeout(header.decode("latin-1"))


def parsed_timeout(text: str) -> int:
    """Return the deadline that the value of a header states, in milliseconds; raises `RequestValidationError`."""
    try:
        return _TIMEOUT.validate_python(text)
    except ValidationError as error:
        raise RequestValidationError(errors_of(error, "header", TIMEOUT_HEADER)) from None


def urgency_of(priority: str | None) -> int:
    """Return the urgency that the header states; malformed headers are ignored (RFC 9218, section 4)."""
    found = _URGENCY.search(priority or "")
    return int(found[1]) if found else DEFAULT_URGENCY


def caller_of(request: Request, timeout_ms: int | None = None, priority: str | None = None) -> Caller:
    """Return who asks, by default with the deadline and the urgency of the headers.

    Raises `RequestValidationError` for a deadline that is no number.
    """
    headers = request.headers
    return Caller(
        account_of(request.scope),
        timeout_of(dict(request.scope["headers"])) if timeout_ms is None else timeout_ms,
        urgency_of(headers.get("priority") if priority is None else priority),
        tenant_of(request),
        side_of(request),
    )


def side_of(request: Request) -> str | None:
    """Return the model of a canary that a header asks for; None without such a header."""
    for name, value in request.scope["headers"]:
        if name == _CANARY_NAME and value in (b"primary", b"candidate"):
            return str(value.decode())
    return None


def engine_of(request: Request) -> Engine:
    """Return the engine of the application."""
    engine: Engine = request.app.state.engine
    return engine


def server_timing(request: Request) -> dict[str, str]:
    """Return the header `Server-Timing` (W3C), in milliseconds; none where no model was run."""
    account = account_of(request.scope)
    if account.timing is None:
        return {}
    queue, infer = 1000 * account.timing.queue, 1000 * account.timing.inference
    tokenize = 1000 * account.preparation_seconds
    return {"Server-Timing": f"queue;dur={queue:.3f}, tokenize;dur={tokenize:.3f}, infer;dur={infer:.3f}"}
