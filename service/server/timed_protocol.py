"""HTTP/1.1 connections with bounds on the time that clients take to send headers and to read answers."""

import abc
import asyncio
import math
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.server.connections import Connections

__all__ = ["NEVER", "TOO_MANY_CONNECTIONS", "TimedProtocol"]

NEVER = math.inf
"""The time of a deadline that is not set."""
TOO_MANY_CONNECTIONS = "too many connections"
"""The detail of the answer to a request that is no probe, on a connection beyond the limit."""
_PROBE_SECONDS = 2.0
"""Seconds in which the headers must arrive on a connection beyond the limit."""
_LINGER = 2.0
"""Seconds in which a client whose connection is being closed may read the answer. Data that it sends is discarded;
without that the system would reset the connection, and clients that are still sending would not see the answer."""


_PROVISIONAL = b"HTTP/1.1 100 "
"""The beginning of a response that is not the answer."""


class _AnswerTransport:
    """The transport, as a request's cycle sees it.

    It sends the headers of an answer in one write with its body, which uvicorn writes one after the other: a process
    that ends in between would leave half an answer, which a proxy cannot retry on another instance. It closes without
    cutting off clients that are still sending, for a cycle closes it as soon as its answer is written.
    """

    __slots__ = ("_held", "_protocol", "_transport")

    def __init__(self, protocol: "TimedProtocol", transport: asyncio.Transport) -> None:
        self._protocol, self._transport, self._held = protocol, transport, b""

    def write(self, data: bytes) -> None:
        """Send the data with the next write, or in the next turn of the event loop."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.writelines((held, data))
        elif data.startswith(_PROVISIONAL):
            self._transport.write(data)
        elif data:
            self._held = data
            self._protocol.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send the data that waits for the next write, if the connection is still open."""
        held, self._held = self._held, b""
        if held and not self._protocol.discards_answers and not self._transport.is_closing():
            self._transport.write(held)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._protocol.close_after_answer()


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with deadlines; `Connections` calls `expire` again and again."""

    def __init__(self, *arguments: Any, shared: Connections, **options: Any) -> None:
        """Create the protocol of a connection; all arguments but `shared` are those of uvicorn's protocol."""
        super().__init__(*arguments, **options)
        self._shared = shared
        self._in_head = self._in_body = False  # the part of a request that comes next
        self._running: RequestResponseCycle | None = None
        self._discarding = self._lingering = self._for_probes = False
        self._head_deadline = self._send_deadline = self._linger_deadline = NEVER
        self._send_left = self._shared.send_timeout  # seconds in which the client must still read the answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._answer_transport = _AnswerTransport(self, transport)
        transport.set_write_buffer_limits(high=HIGH_WATER_LIMIT, low=0)  # low: so that time counts until all is sent
        self._for_probes = not self._shared.admit(self, len(self.connections))
        self._await_head()

    @property
    def discards_answers(self) -> bool:
        """Whether the connection takes no more data of an answer, after its end was sent."""
        return self._lingering

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._shared.forget(self)
        if self._running is not None and not self._running.response_complete:
            self._disconnect(self._running)  # uvicorn notifies the last request of the pipeline only
        self.pipeline.clear()
        self._discarding = True

    def shutdown(self) -> None:
        self._answer_transport.flush()
        if self._lingering:
            self.transport.close()
        else:
            super().shutdown()

    def evict(self) -> None:
        """Close an idle connection, or a reserved one, to make room for a new one."""
        if self._for_probes:
            self.transport.abort()
            return
        self._answer_transport.flush()
        if self._in_head:
            self._refuse(408, "the connection was closed for a new one before the headers were complete")
        else:
            self.transport.close()

    def expire(self, now: float) -> None:
        """Close the connection where the client has taken more time than it has."""
        if now >= self._head_deadline:
            self._head_deadline = NEVER
            if self._in_head and self._for_probes:
                self._refuse(503, TOO_MANY_CONNECTIONS)
            elif self._in_head:
                self._refuse(408, f"the headers did not arrive within {self._shared.header_timeout:g} seconds")
            else:
                self.transport.close()
        if self.transport.get_write_buffer_size() == 0:
            self._note_sent()
            if now >= self._linger_deadline:
                self.transport.close()
        elif now >= self._send_deadline:
            self.transport.abort()
        elif self._send_deadline == NEVER:
            self.loop.call_soon(self._await_sent)  # by then the latest write is sent, if it can be

    def _await_sent(self) -> None:
        """Bound the time of an answer that is too small for the transport to call `pause_writing`."""
        if self._send_deadline == NEVER and self.transport.get_write_buffer_size() > 0:
            self._send_deadline = self.loop.time() + self._send_left

    def _note_sent(self) -> None:
        """Stop the time of an answer while all that was written of it is sent."""
        if self._send_deadline != NEVER:
            self._send_left = max(0.0, self._send_deadline - self.loop.time())
            self._send_deadline = NEVER

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._send_left = self._shared.send_timeout
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_sent()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note_sent()

    def close_after_answer(self) -> None:
        """Close the connection once the answer is sent, and the client has had time to read it."""
        self._answer_transport.flush()
        if self._in_head or self._in_body or self._discarding:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        self._answer_transport.flush()
        self._discarding = True
        self._head_deadline = NEVER
        self._unset_keepalive_if_required()
        if self.transport.is_closing() or not self.transport.can_write_eof() or not self._shared.may_linger(self):
            self.transport.close()
            return
        self._lingering = True
        self._linger_deadline = self.loop.time() + _LINGER
        self.transport.write_eof()
        self.flow.resume_reading()  # else the end of the connection would not be seen

    def _await_head(self) -> None:
        seconds = self._shared.header_timeout
        self._head_deadline = self.loop.time() + (min(seconds, _PROBE_SECONDS) if self._for_probes else seconds)

    @property
    def _busy(self) -> bool:
        """Whether a request is being answered."""
        return self._running is not None and not self._running.response_complete

    @staticmethod
    def _disconnect(cycle: RequestResponseCycle) -> None:
        cycle.disconnected = True
        cycle.message_event.set()

    @abc.abstractmethod
    def _refuse(self, status: int, detail: str) -> None:
        """Answer the request that is being received with a problem, and close the connection."""
