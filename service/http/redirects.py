"""Redirects of the router, from a path with slashes at its end to the one without: to a path, on no other host.

The router answers with an address that it makes of the scheme and the `Host` that it sees, which behind a proxy are not
those of the client.
"""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["RelativeRedirects"]

_ADDRESS = re.compile(rb"[a-z][a-z0-9+.-]*://[^/?#]*", re.IGNORECASE)
_SLASHES = re.compile(rb"[/\\]*")


class RelativeRedirects:
    """Middleware that keeps of the address of a redirect the path and the query (RFC 9110, section 10.2.2).

    The path begins with one slash: with two it would be the address of a host.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_relative(message: Message) -> None:
            if message["type"] == "http.response.start" and 300 <= message["status"] < 400:
                pairs = message.get("headers", ())
                message["headers"] = [(n, _relative(v) if n.lower() == b"location" else v) for n, v in pairs]
            await send(message)

        await self._app(scope, receive, send_relative)


def _relative(location: bytes) -> bytes:
    return b"/" + _SLASHES.sub(b"", _ADDRESS.sub(b"", location, count=1), count=1)
