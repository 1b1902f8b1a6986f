"""Errors of requests: what went wrong, and answers that say so.

The native endpoints answer with RFC 9457 problem details (`application/problem+json`), other protocols in their own
form.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import Scope

from models import NativeError, QueryError, TooManyPartsError, UnknownModelError, UnsuitableModelError
from models.operations.validation import named_sentence, shown_name
from service.engine.batcher import DeadlineExceeded, EngineFailed, Stopped
from service.engine.budget import OverBudget
from service.engine.caller import Account
from service.engine.computations import ComputationTimeout, ModelStuck
from service.engine.queue import QueueFull
from service.engine.served_models import NotReady
from service.engine.tenants import LimitReached
from service.http.accounts import account_of
from service.http.routes import allowed_methods, endpoint_of, nearest_paths, route_path, serving_path

__all__ = [
    "ERROR_FORMS",
    "FAILED_STATUS",
    "MAX_ERRORS",
    "PROBLEM_RESPONSES",
    "ClientDisconnected",
    "ErrorForm",
    "Failing",
    "Failure",
    "Problem",
    "error_response",
    "failure_of",
    "form_of",
    "install_error_handlers",
    "problem_response",
    "problem_schema",
]


logger = logging.getLogger("softserve")

_LONGEST_RETRY = 60
"""Seconds; the largest `Retry-After`."""
MAX_ERRORS = 10
"""Fields that a 422 names at most."""
_MAX_DETAIL = 1000
"""Characters of a problem's detail."""


class Problem(BaseModel):
    """Problem details, RFC 9457 section 3.1, with the request's id."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str = "about:blank"
    """Always the same: the status says what kind of problem it is."""
    title: str
    """Phrase of the status."""
    status: int
    """HTTP status of the response."""
    detail: str
    """Reason why this request was refused, with the allowed values."""
    request_id: str
    """The request's id, as in the header `X-Request-Id`."""


def problem_schema(description: str) -> dict[str, object]:
    """Return the description of a problem answer for the OpenAPI entry of an endpoint."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": description, "content": content}


PROBLEM_RESPONSES: dict[int | str, dict[str, object]] = {
    status: problem_schema(HTTPStatus(status).phrase) for status in (400, 401, 404, 413, 415, 422, 429, 500, 503, 504)
}
"""Problem answers of an endpoint that runs a model, for its OpenAPI entry."""


class ClientDisconnected(Exception):
    """The client of a request has disconnected, so that nothing is answered."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that was not served: the HTTP status, the reason, and headers of the answer."""

    status: int
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    budget_used: bool = False
    """Whether the budget of a day is used up, for which some protocols have a status of their own."""


ErrorForm = Callable[[Failure], Response]
"""Makes the answer of a protocol to a request that failed."""


def problem_response(request_id: str, failure: Failure) -> Response:
    """Return a failure as problem details."""
    title = HTTPStatus(failure.status).phrase
    problem = Problem(title=title, status=failure.status, detail=failure.detail, request_id=request_id)
    return JSONResponse(problem.model_dump(), failure.status, failure.headers, media_type="application/problem+json")


def error_response(scope: Scope, failure: Failure) -> Response:
    """Return the answer to a request that failed, in the form of the protocol that its path belongs to."""
    failure = replace(failure, detail=_shortened(failure.detail, _MAX_DETAIL))
    forms: Mapping[str, ErrorForm] = getattr(scope["app"].state, ERROR_FORMS, {}) if "app" in scope else {}
    form = form_of(forms, route_path(scope))
    if failure.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        scope["state"][FAILED_STATUS] = failure.status
    return form(failure) if form is not None else problem_response(scope["state"]["request_id"], failure)


def form_of(forms: Mapping[str, ErrorForm], path: str) -> ErrorForm | None:
    """Return the form of errors of a path; None where it belongs to no protocol but the native one."""
    return next((form for prefix, form in forms.items() if path == prefix or path.startswith(f"{prefix}/")), None)


FAILED_STATUS = "failed_status"
"""Key of a request's state: the status that it is counted under where the answer has another one.

An answer that has begun has 200, and some protocols answer a fault of the service with a status below 500.
"""
ERROR_FORMS = "error_forms"
"""Attribute of an application's state: the form of each prefix of paths, longer prefixes before shorter ones."""


@dataclass(frozen=True, slots=True)
class Failing:
    """A request that failed, over whatever protocol."""

    account: Account
    app: Any
    """The application."""
    scope: Scope | None = None
    """The ASGI scope of a request over HTTP; None for a call over another protocol."""

    @classmethod
    def of(cls, scope: Scope) -> "Failing":
        """Return the failing request of an ASGI scope."""
        return cls(account_of(scope), scope.get("app"), scope)


Maker = Callable[[Failing, Exception], Failure]


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of a request in the form of its protocol; only bugs have status 500."""
    for kind, make in _FAILURES.items():
        app.add_exception_handler(kind, _handler(make))
    app.add_exception_handler(Exception, _handler(_bug))


def _handler(make: Maker) -> Callable[[Request, Exception], Response]:
    def handle(request: Request, error: Exception) -> Response:
        return error_response(request.scope, make(Failing.of(request.scope), error))

    return handle


def failure_of(failing: Failing, error: Exception) -> Failure | None:
    """Return what went wrong with a request; None for a bug."""
    makers = (_FAILURES[kind] for kind in type(error).__mro__ if kind in _FAILURES)
    make = next(makers, None)
    return make(failing, error) if make else None


def _failure(status: int, detail: str | None = None, headers: Mapping[str, str] | None = None) -> Maker:
    def make(failing: Failing, error: Exception) -> Failure:
        del failing
        return Failure(status, detail or str(error), headers or {})

    return make


def _expired(failing: Failing, error: Exception) -> Failure:
    del error
    failing.account.note_missed_deadline()
    return Failure(504, "the deadline passed before the request was computed")


def _queue_full(failing: Failing, error: Exception) -> Failure:
    assert isinstance(error, QueueFull)
    failing.account.note_missed_deadline()
    if error.never:
        most = error.limits and f": {error.limits.max_queue_items} texts, {error.limits.max_queue_tokens} tokens"
        return Failure(413, f"the request holds more texts or tokens than the queue{most or ''}; send fewer at a time")
    seconds = math.ceil(min(max(error.retry_after, 1), _LONGEST_RETRY))
    return Failure(429, "the model's queue is full", {"Retry-After": str(seconds)})


def _limit_reached(failing: Failing, error: Exception) -> Failure:
    """429 with the time after which the limit has room again, 413 for a request that alone is more than a limit."""
    assert isinstance(error, LimitReached)
    del failing
    if error.never:
        return Failure(413, f"{error}; send fewer at a time")
    return Failure(429, str(error), {"Retry-After": str(max(1, math.ceil(error.retry_after)))}, error.of_day)


def _too_many_parts(failing: Failing, error: Exception) -> Failure:
    """413 for a text with more parts than the queue has room for."""
    assert isinstance(error, TooManyPartsError)
    del failing
    return Failure(
        413, f"the text has {error.length} {error.unit}; the queue holds {error.limit}; send fewer at a time"
    )


def _invalid(failing: Failing, error: Exception) -> Failure:
    """400 for a body that is not a JSON object, 422 naming every field that is wrong."""
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    malformed = [e for e in errors if e["type"] == "json_invalid" or e["loc"] == ("body",)]
    if malformed:
        return Failure(400, _malformed(failing, malformed[0]))
    return Failure(422, "; ".join(named_sentence(each, each["loc"][1:]) for each in errors[:MAX_ERRORS]))


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _malformed(failing: Failing, error: Mapping[str, Any]) -> str:
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']}"
    if error["type"] == "string_unicode":
        return "the body has a key that holds half of a surrogate pair, which is no character"
    content_type = "" if failing.scope is None else Headers(scope=failing.scope).get("content-type", "")
    if "json" not in content_type:
        return f"the body must be JSON, sent with Content-Type: application/json, not {content_type or 'without one'}"
    return "the body must be a JSON object"


def _unsuitable(failing: Failing, error: Exception) -> Failure:
    """Say also where the operations are that the named model offers."""
    assert isinstance(error, UnsuitableModelError)
    paths = [path for each in error.offers if (path := serving_path(failing.app, each))]
    return Failure(404, f"{error}; it is served by POST {' and POST '.join(paths)}" if paths else str(error))


def _http(failing: Failing, error: Exception) -> Failure:
    assert isinstance(error, HTTPException)
    status, detail = error.status_code, str(error.detail)
    scope = failing.scope
    if scope is None or failing.app is None or status not in (404, 405) or detail != HTTPStatus(status).phrase:
        return Failure(status, detail, error.headers or {})
    if status == HTTPStatus.NOT_FOUND:
        return Failure(status, _no_path(scope))
    methods = ", ".join(allowed_methods(scope))
    detail = f"{endpoint_of(scope)} is served with {methods}, not with {shown_name(scope['method'])}"
    return Failure(status, detail, {"Allow": methods})


def _no_path(scope: Scope) -> str:
    similar = ", ".join(nearest_paths(scope)) or "none; GET /openapi.json describes the native ones"
    return f"there is no such path; similar: {similar}"


def _native(failing: Failing, error: Exception) -> Failure:
    """Write one line to the log, and the traceback at level DEBUG: any number of requests may fail like this."""
    model = failing.account.model or "a model"
    logger.error("%s: %s", model, error)
    logger.debug("%s: %s", model, error, exc_info=error)
    return Failure(500, str(error))


def _bug(failing: Failing, error: Exception) -> Failure:
    del error
    # Starlette answers bugs outside of the middleware that adds the header.
    headers = {} if failing.scope is None else {"X-Request-Id": failing.scope["state"]["request_id"]}
    return Failure(500, "an error in the service; its log has the details", headers)


_FAILURES: Mapping[type[Exception], Maker] = {
    UnknownModelError: _failure(404),
    UnsuitableModelError: _unsuitable,
    QueryError: _failure(422),
    TooManyPartsError: _too_many_parts,
    NativeError: _native,
    DeadlineExceeded: _expired,
    NotReady: _failure(503, headers={"Retry-After": "1"}),
    Stopped: _failure(503, "the service is shutting down", {"Connection": "close"}),
    EngineFailed: _failure(503, "the model's engine has failed; it must be loaded again", {"Retry-After": "5"}),
    ModelStuck: _failure(503, headers={"Retry-After": "5"}),
    ComputationTimeout: _failure(503, headers={"Retry-After": "1"}),
    OverBudget: _failure(422),
    QueueFull: _queue_full,
    LimitReached: _limit_reached,
    RequestValidationError: _invalid,
    HTTPException: _http,
}
