"""The Model Context Protocol: tools for language models, over streamable HTTP without sessions (client: `mcp`)."""

import contextlib
from collections.abc import AsyncIterator

from fastapi import APIRouter, FastAPI, Response
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from service.http.body import read_scope_body
from service.http.errors import Failure
from service.protocols.mcp.server import session_manager
from service.protocols.protocol import Protocol

__all__ = ["PROTOCOL"]

_SERVER_ERROR = -32000
"""The code of JSON-RPC 2.0 that is left to servers."""

router = APIRouter()


class _Endpoint:
    """Answers `POST /mcp` as an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        content = await read_scope_body(scope, receive)
        messages: list[Message] = [{"type": "http.request", "body": content}]

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        await scope["app"].state.mcp.handle_request(scope, receive_again, send)


@contextlib.asynccontextmanager
async def _run(app: FastAPI) -> AsyncIterator[None]:
    app.state.mcp = session_manager(app, app.state.settings)
    async with app.state.mcp.run():
        yield


def _error(failure: Failure) -> Response:
    error = {"code": _SERVER_ERROR, "message": failure.detail}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, failure.status, failure.headers)


router.routes.append(Route("/mcp", _Endpoint(), methods=["POST"]))

PROTOCOL = Protocol(router=router, prefixes=("/mcp",), error=_error, run=_run)
