"""Errors as RFC 9457 problem details (`application/problem+json`)."""

import math
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from models import QueryError, UnknownModelError
from service.engine.batcher import DeadlineExceeded, EngineFailed, Stopped
from service.engine.budget import OverBudget
from service.engine.queue import QueueFull
from service.engine.registry import NotReady

__all__ = [
    "MAX_ERRORS",
    "PROBLEM_RESPONSES",
    "Problem",
    "install_error_handlers",
    "problem_of",
    "problem_response",
    "problem_schema",
]


_LONGEST_RETRY = 60
"""Seconds; the largest `Retry-After`."""
MAX_ERRORS = 10
"""Fields that a 422 names at most."""
_MAX_DETAIL, _MAX_NAME = 1000, 80
"""Characters of a problem's detail and of one name in it, which may be a client's."""


class Problem(BaseModel):
    """Problem details, RFC 9457 section 3.1, with the request's id."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    request_id: str


def problem_schema(description: str) -> dict[str, Any]:
    """Return the description of a problem answer for the OpenAPI entry of an endpoint."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": description, "content": content}


PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: problem_schema(HTTPStatus(status).phrase) for status in (400, 401, 404, 413, 415, 422, 429, 500, 503, 504)
}
"""Problem answers of an endpoint that runs a model, for its OpenAPI entry."""


def problem_response(request_id: str, status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    detail = _shortened(detail, _MAX_DETAIL)
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, request_id=request_id)
    return JSONResponse(problem.model_dump(), status, headers, media_type="application/problem+json")


Handler = Callable[[Request, Exception], Response]


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of the native endpoints with a problem; only bugs have status 500."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(Exception, _bug)


def problem_of(request: Request, error: Exception) -> Response | None:
    """Return the answer to an error; None for a bug."""
    handlers = (_HANDLERS[kind] for kind in type(error).__mro__ if kind in _HANDLERS)
    handler = next(handlers, None)
    return handler(request, error) if handler else None


def problem_handler(status: int, detail: str | None = None, headers: dict[str, str] | None = None) -> Handler:
    def handle(request: Request, error: Exception) -> Response:
        return problem_response(request.state.request_id, status, detail or str(error), headers)

    return handle


def _queue_full(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueueFull)
    if error.never:
        detail = "the request holds more texts or tokens than the queue; send fewer at a time"
        return problem_response(request.state.request_id, 413, detail)
    seconds = math.ceil(min(max(error.retry_after, 1), _LONGEST_RETRY))
    headers = {"Retry-After": str(seconds)}
    return problem_response(request.state.request_id, 429, "the model's queue is full", headers)


def _invalid(request: Request, error: Exception) -> Response:
    """400 for a body that is not a JSON object, 422 naming every field that is wrong."""
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    malformed = [e for e in errors if e["type"] == "json_invalid" or e["loc"] == ("body",)]
    if malformed:
        return problem_response(request.state.request_id, 400, _malformed(request, malformed[0]))
    wrong = [f"{_place(each['loc'])}: {each['msg'].removeprefix('Value error, ')}" for each in errors[:MAX_ERRORS]]
    return problem_response(request.state.request_id, 422, "; ".join(wrong))


def _place(location: Sequence[str | int]) -> str:
    """Return where an error is; names that are a client's are shortened, and lone surrogates are replaced."""
    return ".".join(_shortened(str(part), _MAX_NAME) for part in location[1:]).encode("utf-8", "replace").decode()


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _malformed(request: Request, error: dict[str, Any]) -> str:
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']}"
    if error["type"] == "string_unicode":
        return "the body has a key that holds half of a surrogate pair, which is no character"
    content_type = request.headers.get("content-type", "")
    if "json" not in content_type:
        return f"the body must be JSON, sent with Content-Type: application/json, not {content_type or 'without one'}"
    return "the body must be a JSON object"


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    return problem_response(request.state.request_id, error.status_code, str(error.detail), headers)


def _bug(request: Request, error: Exception) -> Response:
    # Starlette answers bugs outside of the middleware that adds the header.
    request_id = request.state.request_id
    detail = "an error in the service; its log has the details"
    return problem_response(request_id, 500, detail, {"X-Request-Id": request_id})


_HANDLERS: Mapping[type[Exception], Handler] = {
    UnknownModelError: problem_handler(404),
    QueryError: problem_handler(422),
    DeadlineExceeded: problem_handler(504, "the deadline passed before the request was computed"),
    NotReady: problem_handler(503, headers={"Retry-After": "1"}),
    Stopped: problem_handler(503, "the service is shutting down", {"Connection": "close"}),
    EngineFailed: problem_handler(503, "the model's engine has failed; it must be loaded again", {"Retry-After": "5"}),
    OverBudget: problem_handler(422),
    QueueFull: _queue_full,
    RequestValidationError: _invalid,
    HTTPException: _http,
}
