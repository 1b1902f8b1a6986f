"""Middleware of every request: an id, bounds on the body, cancellation on disconnect, metrics."""

import asyncio
import contextlib
import math
import os
import random
import re
import time
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.engine.caller import Account
from service.engine.started import Started, in_time
from service.http.access_log import AccessLog
from service.http.accounts import account_of
from service.http.cache_headers import cache_status, forbids_storing
from service.http.errors import FAILED_STATUS, ClientDisconnected, Failure, error_response
from service.http.quota_headers import quota_headers
from service.http.routes import endpoint_of, route_path
from service.observability.metrics import Metrics

__all__ = ["DRAINING", "RequestMiddleware"]

DRAINING = "draining"
"""Key of a request's state (ASGI lifespan) that is set where the server is about to stop."""

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_RANDOM = random.Random()
os.register_at_fork(after_in_child=_RANDOM.seed)
_BODY_TIMEOUT = 30.0
"""Seconds; the default of `Settings.body_timeout`."""


class _BodyRefused(Exception):
    """The body is too large or too slow."""


_CLIENT_CLOSED_REQUEST = 499
"""The status that a request is counted under whose client disconnected (nginx's); it is never sent."""


class RequestMiddleware:
    """Plain ASGI, so that it costs microseconds and never buffers a body.

    `X-Request-Id` is echoed where it is 1 to 128 visible ASCII characters, and made otherwise. An answer that is sent
    before the body was read to its end closes the connection, so that the rest need not be received.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        max_body_bytes: int,
        body_timeout: float = _BODY_TIMEOUT,
        access_log: AccessLog | None = None,
        body_limits: Mapping[str, int] | None = None,
    ) -> None:
        """`body_limits` are the largest bodies of paths that have another limit than `max_body_bytes`."""
        self._app = app
        self._body_limits = body_limits or {}
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes
        self._body_timeout = body_timeout
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, headers = time.monotonic(), dict(scope["headers"])
        request_id, account = _request_id(headers), account_of(scope)
        scope["state"]["request_id"] = request_id.decode()
        scope.pop("route", None)  # of an application that this one is mounted in
        if b"cache-control" in headers:
            account.no_store = forbids_storing(headers[b"cache-control"])
        limit = self._max_body_bytes
        if self._body_limits:
            limit = self._body_limits.get(route_path(scope), limit)
        body = _Body(receive, headers, limit, self._body_timeout)
        status, sending = 500, 0.0

        async def send_with_id(message: Message) -> None:
            nonlocal status, sending
            if message["type"] == "http.response.start":
                status = message["status"]
                added = [(b"x-request-id", request_id)]
                if DRAINING in scope["state"] or not body.complete:
                    added.append((b"connection", b"close"))
                added += _headers_of(account)
                message["headers"] = [*message.get("headers", ()), *added]
            began = time.monotonic()
            await send(message)
            sending += time.monotonic() - began

        try:
            await self._run(scope, body, send_with_id)
        except ClientDisconnected:
            status = _CLIENT_CLOSED_REQUEST
        except Exception:
            status = 500
            raise
        finally:
            status = scope["state"].pop(FAILED_STATUS, status)
            account.close()  # the server keeps the scope for a while
            self._count(scope, account, status, time.monotonic() - started, body.waited + sending)

    async def _run(self, scope: Scope, body: "_Body", send: Send) -> None:
        """Run the application, and answer for it where the body is refused."""
        answered = False

        async def send_unless_refused(message: Message) -> None:
            nonlocal answered
            if body.refusal is None:  # the application may take the refusal for a parse error and answer that
                answered = True
                await send(message)

        if body.refusal is None:
            handler = asyncio.current_task()
            assert handler is not None
            with contextlib.suppress(_BodyRefused):
                await _Connection(body.receive, send_unless_refused, handler).run(self._app, scope)
        if body.refusal is not None and not answered:
            response = error_response(scope, Failure(*body.refusal))
            await response(scope, body.receive, send)

    def _count(self, scope: Scope, account: Account, status: int, seconds: float, waited: float) -> None:
        """Count a request that took so many seconds, in some of which its client sent the body or read the answer."""
        model, endpoint = account.model or "", endpoint_of(scope)
        self._metrics.count(model, endpoint, status, seconds - waited, short_deadline=account.short_deadline)
        if self._access_log is not None:
            self._access_log.write(scope, status, seconds)


def _headers_of(account: Account) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer about the limits of its API key and the cache of results."""
    found = [] if account.quotas is None else quota_headers(account.quotas())
    if account.cache is not None:
        found.append((b"cache-status", cache_status(account.cache)))
    return found


def _request_id(headers: Mapping[bytes, bytes]) -> bytes:
    given = headers.get(b"x-request-id", b"")
    return given if _REQUEST_ID.fullmatch(given) else b"%032x" % _RANDOM.getrandbits(128)


class _Body:
    """The body of a request, which is refused as soon as it is seen to be too large, or is not complete in time."""

    def __init__(self, receive: Receive, headers: Mapping[bytes, bytes], limit: int, timeout: float) -> None:
        self.complete = headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
        """Whether nothing of it is left to be read."""
        self.waited = 0.0
        """Seconds in which the client was waited for."""
        self.refusal: tuple[int, str] | None = None
        """Status and detail of the answer."""
        self._receive, self._limit, self._timeout = receive, limit, timeout
        self._read, self._deadline, self._ended = 0, math.inf, False
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
            self._refuse_size()

    async def receive(self) -> Message:
        """Return the next message; raise `_BodyRefused`."""
        if self.refusal is not None:
            raise _BodyRefused
        if self._ended:  # the next message is the end of the connection
            return await self._receive()
        message = await self._receive_in_time()
        self._read += len(message.get("body", b""))
        if self._read > self._limit:
            self._refuse_size()
            raise _BodyRefused
        self.complete = self._ended = not message.get("more_body", False)
        return message

    async def _receive_in_time(self) -> Message:
        """Bound the time for the whole body, not that between two parts, from when the application begins to read."""
        began = time.monotonic()
        self._deadline = min(self._deadline, began + self._timeout)
        try:
            return await in_time(self._receive(), self._deadline - began)
        except TimeoutError:
            self.refusal = (408, f"the body did not arrive within {self._timeout:g} seconds")
            raise _BodyRefused from None
        finally:
            self.waited += time.monotonic() - began

    def _refuse_size(self) -> None:
        self.refusal = (413, f"the body is larger than the {self._limit} bytes this service accepts")


class _Connection:
    """A request whose handler is cancelled where the client disconnects before there is an answer.

    The connection is watched from the end of the body on.
    """

    def __init__(self, receive: Receive, send: Send, handler: "asyncio.Task[None]") -> None:
        self._receive, self._send, self._handler = receive, send, handler
        self._end: Started[Message] | None = None
        """Waits for what the client does after it has sent the body."""
        self._watcher: asyncio.Task[None] | None = None
        self._answered = self._disconnected = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Run an application; raises `ClientDisconnected` where it was cancelled."""
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self._disconnected:
                raise
            self._handler.uncancel()
            raise ClientDisconnected from None
        finally:
            if self._watcher is not None:
                self._watcher.cancel()
            elif self._end is not None:
                self._end.close()
                self._end = None

    async def receive(self) -> Message:
        if self._end is not None:  # the application waits for the end itself
            await self._watching(self._end)
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            self._end = Started(self._receive())
            self._end.when_ready(self._note_end)
        return message

    def _note_end(self) -> None:
        """Watch the connection, about which there is news while there is no answer."""
        if self._end is not None and not self._answered:
            self._watching(self._end)

    def _watching(self, end: "Started[Message]") -> "asyncio.Task[None]":
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(end))
        return self._watcher

    async def send(self, message: Message) -> None:
        self._answered = True
        await self._send(message)

    async def _watch(self, end: "Started[Message]") -> None:
        message = await end
        while message["type"] != "http.disconnect":
            message = await self._receive()
        if not self._answered:
            self._disconnected = True
            self._handler.cancel()
