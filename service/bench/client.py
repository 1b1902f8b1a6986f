"""HTTP as a load test needs it: little processor time for a request, and a plain word for what went wrong."""

import asyncio
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from service.bench.options import UsageError

__all__ = ["NO_ANSWER_IN_TIME", "Answer", "Client", "TransportError", "base_of"]

NO_ANSWER_IN_TIME = "no answer in time"
"""Message of the `TransportError` of a request that reached its time limit, at which its connection is closed."""


class TransportError(Exception):
    """A request without an answer; the message says what kind of failure it was, in a few words."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    content: bytes
    retry_after: str | None = None


def base_of(url: str) -> str:
    """An address without the slash at its end. Raises `UsageError` for what is none, or holds what it should not."""
    try:
        parts = urlsplit(url)
        parsed = URL(url)
        host, port = parsed.host, parts.port
    except ValueError as error:
        raise UsageError(f"{url} is no address: {error}") from None
    if not host or port == 0:
        raise UsageError(f"{url} is no address: it names no host or port")
    if parts.username is not None:
        raise UsageError("the address may not hold a user or password, which lists of processes would show")
    if parts.query or parts.fragment:
        raise UsageError(f"{url} is not the address of a server: it has a query or fragment")
    return url.rstrip("/")


class Client:
    """Connections to one server, opened as they are needed; for `async with`."""

    def __init__(self, base: str, key: str | None, connections: int) -> None:
        self._base = base
        self._key = key
        self._connections = connections
        self._urls: dict[str, URL] = {}

    async def __aenter__(self) -> Self:
        headers = {"Content-Type": "application/json", "User-Agent": "softserve-bench"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # one timer for all of it, below
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, path: str, seconds: float) -> Answer:
        """Raises `TransportError`, also where that many seconds pass."""
        return await self._request("GET", path, seconds)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Answer:
        """Sends JSON, once a connection is free. Raises `TransportError`, also where that many seconds pass."""
        return await self._request("POST", path, seconds, headers, body)

    async def _request(
        self,
        method: str,
        path: str,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        url = self._urls.get(path) or self._urls.setdefault(path, URL(self._base + path))
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(method, url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return Answer(response.status, await response.read(), response.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise TransportError(_kind(error)) from None


def _kind(error: Exception) -> str:
    """Few enough different ones that they can be counted."""
    if isinstance(error, TimeoutError):
        return NO_ANSWER_IN_TIME
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server hung up"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer broke off"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "unknown host"
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError)):
        return "no secure connection"
    if isinstance(error, aiohttp.ClientResponseError):
        return "the answer is no HTTP"
    if isinstance(error, ConnectionResetError):
        return os.strerror(errno.ECONNRESET).lower()
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return type(error).__name__
