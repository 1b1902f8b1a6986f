"""HTTP/1.1 connections with bounds on headers, trailers and pipelines, besides those on the time that clients take.

uvicorn's protocol bounds none of these: a client could hold connections open, and memory without end, by sending its
headers slowly or not at all, by headers, trailers or a pipeline of any length, or by not reading its answers.
"""

import re
import time
from collections import deque
from typing import Any, NoReturn
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from service.http.errors import ErrorForm, form_of
from service.server.connections import PROBES, refusal
from service.server.timed_protocol import NEVER, TOO_MANY_CONNECTIONS, TimedProtocol

__all__ = ["MAX_HEADER_FIELDS", "MAX_HEAD_BYTES", "MAX_WAITING_BYTES", "MAX_WAITING_REQUESTS", "BoundedProtocol"]

MAX_HEAD_BYTES = 32 << 10
"""Bytes of a request's target, headers and trailers."""
MAX_HEADER_FIELDS = 128
"""Headers of a request: each takes some 200 bytes of memory however short it is."""
MAX_WAITING_REQUESTS = 8
"""Requests of one connection that wait for the answers to earlier ones (pipelining)."""
MAX_WAITING_BYTES = 64 << 10
"""Bytes of these requests, headers and bodies."""

_TURN = 0.02
"""Seconds of parsing after which the event loop does other work first: a read may hold tens of thousands of chunks."""
_PIECE = 16 << 10
"""Bytes that are parsed at once. The parser says nothing of a header before its end, so that up to as many more than
`MAX_HEAD_BYTES` may be held."""
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:%\[\]-]*")
"""Characters of hosts (RFC 3986, section 3.2.2) and ports."""
_LONGEST_PREFIX = 256
"""Bytes of a target that is too long by which it is told whose protocol it is."""
_FRAMING = (b"content-length", b"transfer-encoding")


class _Refused(Exception):
    """Stops the parser; the protocol knows why."""


class BoundedProtocol(TimedProtocol):
    """uvicorn's protocol with deadlines and with bounds on the size of requests.

    A request that exceeds a bound is answered with a problem (RFC 9457), or in the form of the protocol that its path
    belongs to, where no other answer is due before it on its connection; there the earlier requests are answered. In
    both cases the connection is closed then.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unparsed: deque[memoryview] = deque()
        self._parsing = False
        self._head_bytes = self._unseen_bytes = 0
        self._called = False  # whether the parser has called back since data was last given to it
        self._refusal: tuple[int, str] | None = None
        self._waiting: deque[int] = deque()  # bytes of each request in the pipeline, in its order
        self._upgrade_framing = b""  # headers that say how long the body of a request for an upgrade is
        self._muted = False
        self.url = b""

    # ---- data ----

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        self._unset_keepalive_if_required()
        if not self._in_body and self._head_deadline == NEVER and not self._busy:
            self._await_head()
        if len(data) <= _PIECE and not self._unparsed:
            self._feed(data)
            return
        view = memoryview(data)
        self._unparsed.extend(view[start : start + _PIECE] for start in range(0, len(data), _PIECE))
        if not self._parsing:
            self._parse()

    def _parse(self) -> None:
        """Parse the received data; after a while in a later turn of the event loop, in which nothing more is read."""
        self._parsing, deadline = False, time.monotonic() + _TURN
        while self._unparsed and time.monotonic() < deadline:
            self._feed(self._unparsed.popleft())
        if self.transport.is_closing():
            self._unparsed.clear()
        elif self._unparsed:
            self._parsing = True
            self.transport.pause_reading()
            self.loop.call_soon(self._parse)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

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
        # The parser buffers data until it calls back: part of a header.
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
        self._called = self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._muted:
            return
        self._called = True
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.url += url[:_LONGEST_PREFIX]
            self._fail(414, f"the request target is larger than the {MAX_HEAD_BYTES} bytes this service accepts")
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take note of a header; trailers are counted and dropped, for they are no headers (RFC 9110, 6.5.1)."""
        if self._muted:
            return
        self._called = True
        self._head_bytes += len(name) + len(value) + 4  # the colon, a space and the end of the line
        if self._head_bytes > MAX_HEAD_BYTES:
            self._fail(431, f"the headers are larger than the {MAX_HEAD_BYTES} bytes this service accepts")
        if self._in_head:
            if len(self.headers) == MAX_HEADER_FIELDS:
                self._fail(431, f"the request has more than the {MAX_HEADER_FIELDS} headers this service accepts")
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._muted:
            self._muted = False
            return
        self._called = True
        if self._for_probes and not self._is_probe():
            self._fail(503, TOO_MANY_CONNECTIONS)
        self._check_host()
        waits = self._busy
        if waits and len(self.pipeline) == MAX_WAITING_REQUESTS:
            self._fail(503, "too many requests wait on the connection")
        super().on_headers_complete()
        if self._for_probes:
            self.cycle.keep_alive = False
        self._in_head, self._in_body, self._head_deadline = False, True, NEVER
        self._shared.idle.pop(self, None)
        if waits:
            self._waiting.appendleft(self._head_bytes)
            self._check_waiting()
        if self.parser.should_upgrade():
            headers = [(name, value) for name, value in self.headers if name in _FRAMING and value != b"0"]
            self._upgrade_framing = b"".join(b"%s: %s\r\n" % header for header in headers)

    def _check_host(self) -> None:
        """Refuse requests without exactly one valid `Host` (RFC 9112, section 3.2), which HTTP/1.0 may do without."""
        hosts = [value for name, value in self.headers if name == b"host"]
        if not hosts and self.parser.get_http_version() != "1.0":
            self._fail(400, "the request has no Host header")
        if len(hosts) > 1:
            self._fail(400, f"the request has {len(hosts)} Host headers")
        if hosts and not _HOST.fullmatch(hosts[0]):
            self._fail(400, "the Host header is not a name or address with a port")

    def _form(self) -> ErrorForm | None:
        """Return the form of errors of the request that is being received, as far as its target is known."""
        path = unquote(self.url.partition(b"?")[0].decode("latin-1"))
        return form_of(self._shared.forms, path)

    def _is_probe(self) -> bool:
        return self.parser.get_method() in (b"GET", b"HEAD") and self.url.partition(b"?")[0] in PROBES

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
        self._in_head = self._in_body = False  # the part of a request that comes next
        super().on_message_complete()
        self.url = b""  # the next bytes may be no request

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
        if self._in_body:  # which would otherwise be received, however long
            self._linger()
        elif self._in_head or self._unseen_bytes:
            self._unset_keepalive_if_required()
            self._await_head()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer the request that is being received with a problem, and close the connection."""
        self._answer_transport.flush()
        self._discarding = True
        in_body = self._in_body
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
        response = refusal(status, detail, {"Retry-After": "1"} if status == 503 else None, self._form())
        head = [b"%s: %s\r\n" % header for header in [*self.server_state.default_headers, *response.raw_headers]]
        self.transport.write(b"".join([STATUS_LINE[response.status_code], *head, b"\r\n", response.body]))
        self._linger()
