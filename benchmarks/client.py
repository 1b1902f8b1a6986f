"""A client of the service for load: plain sockets, for an HTTP library would take processor time from the server."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "Connection"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, and a body where it is JSON."""

    status: int
    body: Any


class Connection:
    """One connection to a server on this machine, opened when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, path: str, body: object, headers: str = "") -> None:
        """A `POST` of JSON; `headers` are lines that each end with CRLF."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
        self._streams[1].write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)

    async def answer(self) -> Answer:
        """What comes next. Raises what a connection that ends raises."""
        assert self._streams is not None
        reader = self._streams[0]
        status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(field.split(": ", 1) for field in fields if field)
        content = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.drop()
        return Answer(int(status.split()[1]), json.loads(content) if "json" in headers["content-type"] else None)

    async def post(self, path: str, body: object, headers: str = "") -> Answer:
        """Sends a request and waits for its answer."""
        await self.send(path, body, headers)
        return await self.answer()

    def drop(self) -> None:
        """Hangs up, whatever is on its way."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
