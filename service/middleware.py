"""What happens around every request: an id, a bound on the body, a count and a duration."""

import contextlib
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import problem_response
from service.metrics import Metrics

__all__ = ["RequestMiddleware"]

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class _BodyTooLarge(Exception):
    pass


class RequestMiddleware:
    """Plain ASGI, so that it costs microseconds and never buffers a body.

    `X-Request-Id` is echoed where it is 1 to 128 visible ASCII characters, and made otherwise.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, max_body_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, headers = time.monotonic(), Headers(scope=scope)
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            await self._bounded(scope, receive, send_with_id, headers)
        finally:
            self._count(scope, status, time.monotonic() - started)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        """Runs the application on a body that is refused as soon as it is seen to be too large."""
        limit, read = self._max_body_bytes, 0

        async def bounded_receive() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise _BodyTooLarge
            return message

        async def bounded_send(message: Message) -> None:
            if read <= limit:  # the application may take the refusal for a parse error and answer that
                await send(message)

        declared = headers.get("content-length", "0")
        if declared.isdecimal() and (len(declared) > 18 or int(declared) > limit):
            read = limit + 1
        else:
            with contextlib.suppress(_BodyTooLarge):
                await self._app(scope, bounded_receive, bounded_send)
        if read > limit:
            detail = f"the body is larger than the {limit} bytes this service accepts"
            response = problem_response(scope["state"]["request_id"], 413, detail, {"Connection": "close"})
            await response(scope, receive, send)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # The route's template, not the path: labels must not grow with what clients send.
        endpoint = getattr(scope.get("route"), "path", "unmatched")
        model = scope["state"].get("model", "")
        self._metrics.requests.labels(model, endpoint, str(status)).inc()
        self._metrics.request_duration.labels(endpoint).observe(seconds)


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
