"""Answers 503 on a listening socket while no process serves it, so that clients do not wait in its backlog in vain."""

import contextlib
import socket
import time
from collections.abc import Callable, Sequence

__all__ = ["Unavailable"]

_BODY = b"""{"type":"about:blank","title":"Service Unavailable","status":503,\
"detail":"no process serves: models are being loaded, or fail to load"}"""
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\n%s" % (len(_BODY), _BODY)
)
_LONGEST = 2.0
"""Seconds for which a connection is kept: a client sends its request, reads the answer and closes."""
_MOST = 256
"""Connections that are kept; beyond, the oldest one is closed."""
_CHUNK = 1 << 16


class Unavailable:
    """Connections whose requests are answered with 503. It never waits: `poll` is to be called again and again."""

    def __init__(self, listeners: Sequence[socket.socket], clock: Callable[[], float] = time.monotonic) -> None:
        """`listeners` are sockets that other processes may accept from too; they do not block from now on."""
        for listener in listeners:
            listener.setblocking(False)
        self._listeners, self._clock = listeners, clock
        self._open: dict[socket.socket, float] = {}
        """When each connection was accepted, oldest first."""

    def poll(self, *, accept: bool) -> None:
        """Accept connections, if told to, and answer the requests on those accepted before."""
        now = self._clock()
        for listener in self._listeners if accept else ():
            for _ in range(_MOST):
                try:
                    connection, _ = listener.accept()
                except OSError:  # none is waiting, or nothing listens yet
                    break
                connection.setblocking(False)
                self._open[connection] = now
        surplus = list(self._open)[: max(0, len(self._open) - _MOST)]
        for connection in list(self._open):
            if connection in surplus or now - self._open[connection] > _LONGEST or not _answered(connection):
                del self._open[connection]
                connection.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open:
            connection.close()
        self._open.clear()


def _answered(connection: socket.socket) -> bool:
    """Read a request and answer it; return whether the client keeps the connection open.

    Only the client closes: it would lose the answer where the rest of its request arrived at a closed socket.
    """
    try:
        while connection.recv(_CHUNK):
            with contextlib.suppress(OSError):  # answered already
                connection.send(_ANSWER)
                connection.shutdown(socket.SHUT_WR)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
