"""The fast path of requests to the endpoints that run models, past the router.

FastAPI finds a route by matching patterns one after the other, and resolves what an endpoint takes by a general
procedure; together that costs several times what a small model does. These endpoints all take a JSON body and two
headers, on paths without parameters. FastAPI still describes them in the OpenAPI document.
"""

import functools
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.requests import TIMEOUT_HEADER, Timeout, server_timing
from service.errors import problem_of
from service.routes import route_path

__all__ = ["ModelRoute", "RouterBypass"]


class Endpoint(Protocol):
    """What runs a model: a checked body, a deadline and an urgency in, the answer out."""

    def __call__(
        self, body: Any, request: Request, timeout_ms: int | None, priority: str | None
    ) -> Awaitable[BaseModel]: ...


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
        body = self._checked(await _json_of(request, headers.get(b"content-type", b"").decode("latin-1")))
        timeout = _timeout_of(headers.get(TIMEOUT_HEADER.lower().encode()))
        priority = headers.get(b"priority", b"").decode("latin-1")
        answer = await endpoint(body, request, timeout, priority)
        content = answer.__pydantic_serializer__.to_json(answer, exclude_none=self.response_model_exclude_none)
        return Response(content, media_type="application/json", headers=server_timing(request))

    def _checked(self, body: object) -> BaseModel:
        try:
            return self._body_model.model_validate(body)
        except ValidationError as error:
            raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from None

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


async def _json_of(request: Request, content_type: str) -> object:
    """The body as JSON, where it says that it is; else as it came, which no model accepts; None where there is none."""
    body = await _body_of(request)
    if not body:
        return None
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return body
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        context = {"error": error.msg}
        found = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error", "ctx": context}
        raise RequestValidationError([found]) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "There was an error parsing the body") from error


async def _body_of(request: Request) -> bytes:
    parts, more = [], True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "the client left before the end of the body")
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


_TIMEOUT = TypeAdapter(Timeout)


def _timeout_of(header: bytes | None) -> int | None:
    if header is None:
        return None
    try:
        return _TIMEOUT.validate_python(header.decode("latin-1"))
    except ValidationError as error:
        wrong = [{**each, "loc": ("header", TIMEOUT_HEADER)} for each in error.errors()]
        raise RequestValidationError(wrong) from None
