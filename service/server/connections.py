"""The open connections of one process: how many there may be, which are idle, and what time their clients have."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from fastapi import Response

from service.http.errors import ErrorForm, Failure, problem_response

__all__ = ["PROBES", "RESERVED", "Connections", "refusal"]

logger = logging.getLogger("softserve")

RESERVED = 32
"""Connections beyond the limit, on which only `PROBES` are answered."""
PROBES = frozenset((b"/livez", b"/readyz", b"/health", b"/metrics"))
"""Paths of probes and metrics."""
_MAX_LINGERING = 100
"""Connections that wait for their clients to read a refusal; more are closed at once."""
_CHECK_INTERVAL = 0.25
"""Seconds between two looks at the time that clients have taken."""


class Connection(Protocol):
    """A connection, as `Connections` sees it."""

    def evict(self) -> None: ...
    def expire(self, now: float) -> None: ...


class Connections:
    """What connections share: their limits, and the order in which they have become idle."""

    def __init__(
        self,
        *,
        limit: int,
        header_timeout: float,
        send_timeout: float,
        count_refusal: Callable[[int], None],
        forms: Mapping[str, ErrorForm] | None = None,
    ) -> None:
        """Take the times in seconds.

        `count_refusal` is called with the status of each refusal, `forms` has the form of errors of prefixes of paths.
        """
        self.header_timeout, self.send_timeout, self.forms = header_timeout, send_timeout, forms or {}
        self.count_refusal = count_refusal
        self.idle: dict[Connection, None] = {}
        """Connections that no request is in progress on or whose headers are incomplete, longest idle first."""
        self._limit = limit
        self._lingering: set[Connection] = set()
        self._reserved: dict[Connection, None] = {}
        """Connections beyond the limit, the first one first."""

    def admit(self, connection: Connection, opened: int) -> bool:
        """Return whether a new connection is within the limit, given how many are open with it.

        It may take an idle one's place: that is closed, not the new one, so that idle connections cannot keep clients
        out. Otherwise the connection is one of the reserved ones, of which the first is closed where there are too
        many.
        """
        if opened - len(self._lingering) - len(self._reserved) > self._limit:
            if not self.idle:
                if len(self._reserved) == RESERVED:
                    first = next(iter(self._reserved))
                    del self._reserved[first]
                    first.evict()
                self._reserved[connection] = None
                return False
            oldest = next(iter(self.idle))
            del self.idle[oldest]
            oldest.evict()
        self.idle[connection] = None
        return True

    def may_linger(self, connection: Connection) -> bool:
        """Return whether a connection may wait for its client to read a refusal; it counts no more among the open."""
        self.idle.pop(connection, None)
        self._reserved.pop(connection, None)
        if len(self._lingering) >= _MAX_LINGERING:
            return False
        self._lingering.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """Take note that a connection is closed."""
        self.idle.pop(connection, None)
        self._reserved.pop(connection, None)
        self._lingering.discard(connection)

    async def expire(self, opened: Iterable[Connection]) -> None:
        """Close connections whose clients take more time than they have, until cancelled.

        One task looks at all, which costs a request nothing: timers of each connection would have to be set and
        cancelled several times for each.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            now = loop.time()
            for connection in list(opened):
                try:
                    connection.expire(now)
                except Exception:  # one connection's must not end the time limits of all
                    logger.exception("a connection could not be checked")


def refusal(status: int, detail: str, headers: dict[str, str] | None = None, form: ErrorForm | None = None) -> Response:
    """Return the answer to a request that has not reached the application: a problem, or in the form of a protocol."""
    request_id = os.urandom(16).hex()
    failure = Failure(status, detail, {"X-Request-Id": request_id, "Connection": "close", **(headers or {})})
    return problem_response(request_id, failure) if form is None else form(failure)
