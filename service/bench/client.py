"""An HTTP client for load tests: it reuses connections and classifies errors so that they can be counted."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from service.bench.options import UsageError

__all__ = ["TIMED_OUT", "Client", "Response", "TransportError", "base_url"]

TIMED_OUT = "no response in time"
"""Message of the `TransportError` of a request that reached its timeout; its connection is closed."""


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
    if parsed.raw_user is not None or parsed.raw_password is not None:
        raise UsageError("the address must not hold a user or password, which process lists would show")
    if parsed.raw_query_string or parsed.raw_fragment:
        raise UsageError(f"{url} is not the address of a server: it has a query or fragment")
    return url.rstrip("/")


class Client(contextlib.AbstractAsyncContextManager["Client"]):
    """A pool of connections to one server, opened on demand; create it within a running event loop."""

    def __init__(self, base: str, key: str | None, connections: int) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "softserve-bench"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._base = base
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # one timeout for the whole request, below
        )

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    async def get(self, path: str, seconds: float) -> Response:
        """Send a GET request; raises `TransportError`, also after that many seconds."""
        return await self._request("GET", path, seconds)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Response:
        """Send JSON once a connection is free; raises `TransportError`, also after that many seconds."""
        return await self._request("POST", path, seconds, data=body, headers=headers)

    async def _request(self, method: str, path: str, seconds: float, **options: Any) -> Response:
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(method, self._base + path, allow_redirects=False, **options) as response,
            ):
                return Response(response.status, await response.read(), response.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise TransportError(_kind(error)) from None


_KINDS = {
    TimeoutError: TIMED_OUT,
    aiohttp.ServerDisconnectedError: "server disconnected",
    aiohttp.ClientPayloadError: "incomplete response",
    aiohttp.ClientConnectorDNSError: "unknown host",
    aiohttp.ClientConnectorCertificateError: "TLS error",
    aiohttp.ClientSSLError: "TLS error",
    aiohttp.ClientResponseError: "invalid HTTP response",
    ConnectionResetError: os.strerror(errno.ECONNRESET).lower(),
}
"""The kind of each error; the first class that an error is of decides."""


def _kind(error: Exception) -> str:
    """Return the kind of an error, one of few, so that errors can be counted."""
    for error_class, kind in _KINDS.items():
        if isinstance(error, error_class):
            return kind
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return type(error).__name__
