"""What happens around every request: an id, a bound on the body, an end where the client leaves, a count."""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access_log import AccessLog, endpoint_of
from service.errors import problem_response
from service.metrics import Metrics

__all__ = ["RequestMiddleware"]

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class _BodyTooLarge(Exception):
    pass


class _ClientLeft(Exception):
    pass


def _nothing() -> None:
    """What a request without a model leaves to be done."""


_CLIENT_CLOSED_REQUEST = 499
"""The status that such a request is counted under (nginx's); nobody is there to read it."""


class RequestMiddleware:
    """Plain ASGI, so that it costs microseconds and never buffers a body.

    `X-Request-Id` is echoed where it is 1 to 128 visible ASCII characters, and made otherwise.
    """

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, max_body_bytes: int, access_log: AccessLog | None = None
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, headers = time.monotonic(), dict(scope["headers"])
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        try:
            await self._bounded(scope, receive, send_with_id, headers)
        except _ClientLeft:
            status = _CLIENT_CLOSED_REQUEST
        finally:
            scope["state"].pop("release", _nothing)()  # the server keeps the scope for a while
            self._count(scope, status, time.monotonic() - started)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes]) -> None:
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

        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
            read = limit + 1
        else:
            with contextlib.suppress(_BodyTooLarge):
                handler = asyncio.current_task()
                assert handler is not None
                await _Connection(bounded_receive, bounded_send, handler).run(self._app, scope)
        if read > limit:
            detail = f"the body is larger than the {limit} bytes this service accepts"
            response = problem_response(scope["state"]["request_id"], 413, detail, {"Connection": "close"})
            await response(scope, receive, send)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        endpoint = endpoint_of(scope)
        model = scope["state"].get("model", "")
        self._metrics.requests.labels(model, endpoint, str(status)).inc()
        self._metrics.request_duration.labels(model, endpoint).observe(seconds)
        if self._access_log is not None:
            self._access_log.write(scope, status, seconds)


def _request_id(headers: Mapping[bytes, bytes]) -> bytes:
    given = headers.get(b"x-request-id", b"")
    return given if _REQUEST_ID.fullmatch(given) else os.urandom(16).hex().encode()


class _Connection:
    """A request whose handler is cancelled where the client leaves before there is an answer.

    The connection is watched from the end of the body on.
    """

    def __init__(self, receive: Receive, send: Send, handler: "asyncio.Task[None]") -> None:
        self._receive, self._send, self._handler = receive, send, handler
        self._watcher: asyncio.Task[None] | None = None
        self._answered = self._left = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Runs an application; raises `_ClientLeft` where it was cancelled."""
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self._left:
                raise
            self._handler.uncancel()
            raise _ClientLeft from None
        finally:
            if self._watcher is not None:
                self._watcher.cancel()

    async def receive(self) -> Message:
        if self._watcher is not None:  # the application waits for the end itself
            await self._watcher
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            self._watcher = asyncio.create_task(self._watch())
        return message

    async def send(self, message: Message) -> None:
        self._answered = True
        await self._send(message)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._answered:
            self._left = True
            self._handler.cancel()
