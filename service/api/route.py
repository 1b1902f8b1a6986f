"""The fast path of requests to the endpoints that run models, past the router.

FastAPI finds a route by matching patterns one after the other, and resolves what an endpoint takes by a general
procedure; together that costs several times what a small model does. These endpoints all take a JSON body and two
headers, on paths without parameters. FastAPI still describes them in the OpenAPI document.
"""

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.answer import Answer, ChunkedResponse, encoded
from service.api.body import checked_body, read_body
from service.api.requests import TIMEOUT_HEADER, Timeout, server_timing
from service.errors import problem_of
from service.routes import route_path

__all__ = ["ModelRoute", "RouterBypass"]


class Endpoint(Protocol):
    """What runs a model: a checked body, a deadline and an urgency in, the answer out."""

    def __call__(
        self, body: Any, request: Request, timeout_ms: int | None, priority: str | None
    ) -> Awaitable[Answer | BaseModel]: ...


class ModelRoute(APIRoute):
    """A route of an `Endpoint`, whose parameter `body` is annotated with a pydantic model.

    Answers and errors are those of FastAPI.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.respond

    async def respond(self, request: Request) -> Response:
        """Runs the endpoint; raises what it raises, and `RequestValidationError`."""
        endpoint: Endpoint = self.endpoint
        headers = dict(request.scope["headers"])
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise HTTPException(415, "compressed bodies are not accepted", {"Accept-Encoding": "identity"})
        content = await read_body(request)
        body = checked_body(self._body_model, content, headers.get(b"content-type", b"").decode("latin-1"))
        timeout = _timeout_of(headers.get(TIMEOUT_HEADER.lower().encode()))
        priority = headers.get(b"priority", b"").decode("latin-1")
        answer = await endpoint(body, request, timeout, priority)
        chunks = await encoded(request, answer, exclude_none=self.response_model_exclude_none)
        if len(chunks) == 1:
            return Response(chunks[0], media_type="application/json", headers=server_timing(request))
        return ChunkedResponse(chunks, server_timing(request))

    @functools.cached_property
    def _body_model(self) -> type[BaseModel]:
        model: type[BaseModel] = get_type_hints(self.endpoint)["body"]
        return model


class RouterBypass:
    """Middleware that passes `POST` requests on the paths of model routes to these, past the router."""

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._routes = {route.path: route for route in routes if isinstance(route, ModelRoute)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(route_path(scope)) if scope.get("method") == "POST" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        try:
            response = await route.respond(request)
        except Exception as error:
            problem = problem_of(request, error)
            if problem is None:
                raise
            response = problem
        await response(scope, receive, send)


_TIMEOUT = TypeAdapter(Timeout)


def _timeout_of(header: bytes | None) -> int | None:
    if header is None:
        return None
    try:
        return _TIMEOUT.validate_python(header.decode("latin-1"))
    except ValidationError as error:
        wrong = [{**each, "loc": ("header", TIMEOUT_HEADER)} for each in error.errors()]
        raise RequestValidationError(wrong) from None
