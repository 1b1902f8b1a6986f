"""HTTP/1.1 connections with bounds on the size of headers and pipelines and on the time that clients take.

uvicorn's protocol bounds none of these: a client could hold connections open, and memory without end, by sending its
headers slowly or not at all, by headers, trailers or a pipeline of any length, or by not reading its answers.
"""

import asyncio
import enum
import math
from collections import deque
from typing import Any, NoReturn

import httptools
from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.connections import Connections, refusal

__all__ = ["MAX_HEADER_FIELDS", "MAX_HEAD_BYTES", "MAX_WAITING_BYTES", "MAX_WAITING_REQUESTS", "BoundedProtocol"]

MAX_HEAD_BYTES = 32 << 10
"""Bytes of a request's target, headers and trailers."""
MAX_HEADER_FIELDS = 128
"""Headers of a request: each takes some 200 bytes of memory however short it is."""
MAX_WAITING_REQUESTS = 8
"""Requests of one connection that wait for the answers to earlier ones (pipelining)."""
MAX_WAITING_BYTES = 64 << 10
"""Bytes of these requests, headers and bodies."""

_PIECE = 16 << 10
"""Bytes that are parsed at once. The parser says nothing of a header before its end, so that up to as many more than
`MAX_HEAD_BYTES` may be held."""
_LINGER = 2.0
"""Seconds in which a client whose connection is being closed may read the answer. What it sends is discarded; without
that the system would reset the connection, and clients that are still sending would not see the answer."""
_FRAMING = (b"content-length", b"transfer-encoding")


class _Part(enum.Enum):
    """The part of a request that comes next."""

    START = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()


class _Refused(Exception):
    """Stops the parser; the protocol knows why."""


class _AnswerTransport:
    """The transport, as a request's cycle sees it: one that closes without cutting off clients that are still sending.

    A cycle closes it as soon as its answer is written.
    """

    __slots__ = ("_protocol", "_transport", "write")

    def __init__(self, protocol: "BoundedProtocol", transport: asyncio.Transport) -> None:
        self._protocol, self._transport, self.write = protocol, transport, transport.write

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._protocol.close_after_answer()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds; `Connections` calls `expire` again and again.

    A request that exceeds a bound is answered with a problem (RFC 9457) where no other answer is due before it on its
    connection; there the earlier requests are answered. In both cases the connection is closed then.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        shared: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._shared = shared
        self._part = _Part.START
        self._head_bytes = self._unseen_bytes = 0
        self._called = False  # whether the parser has called back since data was last given to it
        self._refusal: tuple[int, str] | None = None
        self._running: RequestResponseCycle | None = None
        self._waiting: deque[int] = deque()  # bytes of each request in the pipeline, in its order
        self._upgrade_framing = b""  # headers that say how long the body of a request for an upgrade is
        self._muted = False
        self._discarding = self._lingering = False
        self._head_deadline = self._send_deadline = self._linger_deadline = math.inf

    # ---- connection ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._answer_transport = _AnswerTransport(self, transport)
        transport.set_write_buffer_limits(high=HIGH_WATER_LIMIT, low=0)  # low: so that time counts until all is sent
        if self._shared.admit(self, len(self.connections)):
            self._await_head()
        else:
            self._refuse(503, "too many connections", {"Retry-After": "1"})

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._shared.forget(self)
        if self._running is not None and not self._running.response_complete:
            self._disconnect(self._running)  # uvicorn tells the last request of the pipeline only
        self.pipeline.clear()
        self._discarding = True

    def shutdown(self) -> None:
        if self._lingering:
            self.transport.close()
        else:
            super().shutdown()

    def evict(self) -> None:
        """Close an idle connection to make room for a new one."""
        if self._part is _Part.HEAD:
            self._refuse(408, "the connection was closed for a new one before the headers were complete")
        else:
            self.transport.close()

    def expire(self, now: float) -> None:
        """Close the connection where the client has taken more time than it has."""
        if now >= self._head_deadline:
            self._head_deadline = math.inf
            if self._part is _Part.HEAD:
                self._refuse(408, f"the headers did not arrive within {self._shared.header_timeout:g} seconds")
            else:
                self.transport.close()
        if now >= self._send_deadline:
            self.transport.abort()
        elif self.transport.get_write_buffer_size() > 0:
            if not self.flow.write_paused:
                # Calls `pause_writing`, and `resume_writing` once all is sent, of less than the usual limit too.
                self.transport.set_write_buffer_limits(high=0)
        elif now >= self._linger_deadline:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._send_deadline = self.loop.time() + self._shared.send_timeout

    def resume_writing(self) -> None:
        super().resume_writing()
        self._send_deadline = math.inf
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(high=HIGH_WATER_LIMIT, low=0)

    def close_after_answer(self) -> None:
        """Close the connection once what is written is sent, and the client has had time to read it."""
        if self._part is _Part.START:
            self.transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        self._discarding = True
        self._head_deadline = math.inf
        self._unset_keepalive_if_required()
        if self.transport.is_closing() or not self.transport.can_write_eof() or not self._shared.may_linger(self):
            self.transport.close()
            return
        self._lingering = True
        self._linger_deadline = self.loop.time() + _LINGER
        self.transport.write_eof()
        self.flow.resume_reading()  # else the end of the connection would not be seen

    def _await_head(self) -> None:
        self._head_deadline = self.loop.time() + self._shared.header_timeout

    @property
    def _busy(self) -> bool:
        """Whether a request is being answered."""
        return self._running is not None and not self._running.response_complete

    # ---- data ----

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        self._unset_keepalive_if_required()
        if self._part is not _Part.BODY and self._head_deadline == math.inf and not self._busy:
            self._await_head()
        if len(data) <= _PIECE:
            self._feed(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            self._feed(view[start : start + _PIECE])

    def _feed(self, data: bytes | memoryview) -> None:
        if self._discarding:
            return
        self._called = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade()
            self._feed(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse(*(self._refusal or (400, "the request is not valid HTTP")))
            return
        # The parser holds what it has not called back with: part of a header.
        self._unseen_bytes = 0 if self._called else self._unseen_bytes + len(data)
        if self._head_bytes + self._unseen_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"the headers are larger than the {MAX_HEAD_BYTES} bytes this service accepts")

    def _ignore_upgrade(self) -> None:
        """Go on as if no upgrade had been asked for (RFC 9110, 7.8), with the body, which the parser would skip.

        Clients that offer HTTP/2 ask for one with requests of all kinds; the body must not be taken for a request.
        """
        framing, self._upgrade_framing = self._upgrade_framing, b""
        if framing:
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self._muted = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")

    # ---- parser ----

    def on_message_begin(self) -> None:
        if self._muted:
            return
        self._called, self._part, self._head_bytes = True, _Part.HEAD, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._muted:
            return
        self._called = True
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._fail(414, f"the request target is larger than the {MAX_HEAD_BYTES} bytes this service accepts")
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take note of a header; trailers are counted and dropped, for they are no headers (RFC 9110, 6.5.1)."""
        if self._muted:
            return
        self._called = True
        self._head_bytes += len(name) + len(value) + 4  # the colon, a space and the end of the line
        if self._head_bytes > MAX_HEAD_BYTES:
            self._fail(431, f"the headers are larger than the {MAX_HEAD_BYTES} bytes this service accepts")
        if self._part is _Part.HEAD:
            if len(self.headers) == MAX_HEADER_FIELDS:
                self._fail(431, f"the request has more than the {MAX_HEADER_FIELDS} headers this service accepts")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._muted:
            self._muted = False
            return
        self._called = True
        waits = self._busy
        if waits and len(self.pipeline) == MAX_WAITING_REQUESTS:
            self._fail(503, "too many requests wait on the connection")
        super().on_headers_complete()
        self._part, self._head_deadline = _Part.BODY, math.inf
        self._shared.idle.pop(self, None)
        if waits:
            self._waiting.appendleft(self._head_bytes)
            self._check_waiting()
        if self.parser.should_upgrade():
            headers = [(name, value) for name, value in self.headers if name in _FRAMING and value != b"0"]
            self._upgrade_framing = b"".join(b"%s: %s\r\n" % header for header in headers)

    def on_body(self, body: bytes) -> None:
        self._called = True
        if self.cycle is not self._running:
            self._waiting[0] += len(body)
            self._check_waiting()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._called = True
        if self._upgrade_framing:
            return
        self._part = _Part.START
        super().on_message_complete()

    def _check_waiting(self) -> None:
        if sum(self._waiting) > MAX_WAITING_BYTES:
            self._fail(503, "too many bytes wait on the connection")

    def _fail(self, status: int, detail: str) -> NoReturn:
        self._refusal = status, detail
        raise _Refused

    # ---- requests ----

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if self._waiting:
            self._waiting.pop()
        self._running = cycle
        cycle.transport = self._answer_transport  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        if self._lingering:
            self.server_state.total_requests += 1
            return
        super().on_response_complete()
        if self._busy or self.transport.is_closing():
            return
        self._shared.idle[self] = None
        if self._part is _Part.BODY:  # which would otherwise be received, however long
            self._linger()
        elif self._part is _Part.HEAD or self._unseen_bytes:
            self._unset_keepalive_if_required()
            self._await_head()

    def _refuse(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        """Answer the request that is being received with a problem, and close the connection."""
        self._discarding = True
        in_body = self._part is _Part.BODY
        if in_body and self.cycle is not self._running:
            self.pipeline.popleft()
            self._waiting.popleft()
        if self._busy and (not in_body or self.cycle is not self._running):
            last = self.pipeline[0][0] if self.pipeline else self._running
            assert last is not None
            last.keep_alive = False
            return
        if in_body and self._running is not None:
            if self._running.response_started:
                self.transport.close()
                return
            self._disconnect(self._running)
        else:
            self._shared.count_refusal(status)
        response = refusal(status, detail, headers)
        head = [b"%s: %s\r\n" % header for header in [*self.server_state.default_headers, *response.raw_headers]]
        self.transport.write(b"".join([STATUS_LINE[status], *head, b"\r\n", response.body]))
        self._linger()

    @staticmethod
    def _disconnect(cycle: RequestResponseCycle) -> None:
        cycle.disconnected = True
        cycle.message_event.set()
