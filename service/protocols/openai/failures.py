"""Errors as OpenAI's API has them."""

from fastapi import Response
from starlette.responses import JSONResponse

from service.http.errors import Failure

__all__ = ["failure_content", "failure_response"]

_CODES = {
    401: "invalid_api_key",
    404: "model_not_found",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    504: "timeout",
}
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_STATUSES = {422: 400}


def failure_content(failure: Failure) -> dict[str, object]:
    """Return the body of the answer to a request that failed."""
    kind = _KINDS.get(failure.status, "server_error" if failure.status >= 500 else "invalid_request_error")
    code = _CODES.get(failure.status)
    if failure.budget_used:
        kind = code = "insufficient_quota"
    error = {"message": failure.detail, "type": kind, "param": None, "code": code}
    return {"error": error}


def failure_response(failure: Failure) -> Response:
    """Return the answer; after a deadline has passed, a client is told not to try again."""
    headers = {**failure.headers, "x-should-retry": "false"} if failure.status == 504 else failure.headers
    return JSONResponse(failure_content(failure), _STATUSES.get(failure.status, failure.status), headers)
