"""An HTTP client for load tests: it reuses connections and classifies errors so that they can be counted."""

import asyncio
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from yarl import URL

from benchmarks.load.options import UsageError

__all__ = ["TIMED_OUT", "Client", "Response", "TransportError", "base_url"]

TIMED_OUT = "no response in time"
"""Message of the `TransportError` of a request that reached its timeout; its connection is closed."""
_FAILURES = (
    (TimeoutError, TIMED_OUT),
    (aiohttp.ServerDisconnectedError, "server disconnected"),
    (aiohttp.ClientPayloadError, "incomplete response"),
    (aiohttp.ClientConnectorDNSError, "unknown host"),
    ((aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError), "TLS error"),
    (aiohttp.ClientResponseError, "invalid HTTP response"),
    (ConnectionResetError, os.strerror(errno.ECONNRESET).lower()),
)
"""Message of each class of errors; the first that fits counts."""


class TransportError(Exception):
    """A request without a response; the message is the kind of failure."""


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    status: int
    content: bytes
    retry_after: str | None = None


def base_url(url: str) -> str:
    """Return an address without its trailing slash; raises `UsageError` if it is malformed or has a password."""
    try:
        parsed = URL(url)
    except ValueError as error:
        raise UsageError(f"{url} is not an address: {error}") from None
    if not parsed.host or parsed.port == 0:
        raise UsageError(f"{url} is not an address: it has no host or port")
    if parsed.user is not None or parsed.password is not None:
        raise UsageError("the address must not hold a user or password, which process lists would show")
    if parsed.query_string or parsed.fragment:
        raise UsageError(f"{url} is not the address of a server: it has a query or fragment")
    return url.rstrip("/")


class Client:
    """A pool of connections to one server, opened on demand; an asynchronous context manager."""

    def __init__(self, base: str, key: str | None, connections: int) -> None:
        self._base = base
        self._headers = {"Content-Type": "application/json", "User-Agent": "softserve-bench"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._connections = connections
        self._urls: dict[str, URL] = {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # one timeout for the whole request, below
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    async def get(self, path: str, seconds: float) -> Response:
        """Send a GET request; raises `TransportError`, also after that many seconds."""
        return await self._request("GET", path, seconds)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Response:
        """Send JSON once a connection is free; raises `TransportError`, also after that many seconds."""
        return await self._request("POST", path, seconds, data=body, headers=headers)

    async def _request(self, method: str, path: str, seconds: float, **content: Any) -> Response:
        url = self._urls.get(path) or self._urls.setdefault(path, URL(self._base + path))
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(method, url, allow_redirects=False, **content) as response,
            ):
                return Response(response.status, await response.read(), response.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise TransportError(_kind(error)) from None


def _kind(error: Exception) -> str:
    """Return the kind of an error, one of few, so that errors can be counted."""
    for classes, message in _FAILURES:
        if isinstance(error, classes):
            return message
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if number is not None and number > 0 else type(error).__name__
