"""The fast path of requests to the endpoints that run models, past the router.

FastAPI finds a route by matching patterns one after the other, and resolves what an endpoint takes by a general
procedure; together that costs several times what a small model does. These endpoints all take a JSON body and two
headers, on paths without parameters. FastAPI still describes them in the OpenAPI document.
"""

import asyncio
import functools
import itertools
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

from service.api.answer import Answer, ChunkedResponse, encoded
from service.api.requests import TIMEOUT_HEADER, Timeout, resources_of, server_timing
from service.engine.budget import Budget
from service.engine.queue import QueueFull
from service.errors import MAX_ERRORS, problem_of
from service.routes import route_path
from service.settings import Settings

__all__ = ["ModelRoute", "RouterBypass"]

_SMALL_BODY = 1 << 16
"""Bytes up to which bodies do not count: a connection buffers as many."""


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
        body = self._checked(await _json_of(request, headers.get(b"content-type", b"").decode("latin-1")))
        timeout = _timeout_of(headers.get(TIMEOUT_HEADER.lower().encode()))
        priority = headers.get(b"priority", b"").decode("latin-1")
        answer = await endpoint(body, request, timeout, priority)
        chunks = await encoded(request, answer, exclude_none=self.response_model_exclude_none)
        if len(chunks) == 1:
            return Response(chunks[0], media_type="application/json", headers=server_timing(request))
        return ChunkedResponse(chunks, server_timing(request))

    def _checked(self, body: object) -> BaseModel:
        """Validate a body. Unknown fields are kept from pydantic, which would make an error of every one."""
        wrong: list[dict[str, Any]] = []
        if isinstance(body, dict):
            known = self._body_model.model_fields
            unknown = itertools.islice((name for name in body if name not in known), MAX_ERRORS)
            message = "Extra inputs are not permitted"
            wrong = [{"type": "extra_forbidden", "loc": ("body", name), "msg": message} for name in unknown]
            if wrong:
                body = {name: value for name, value in body.items() if name in known}
        try:
            checked = self._body_model.model_validate(body)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            wrong += [{**each, "loc": ("body", *each["loc"])} for each in found]
        if wrong:
            raise RequestValidationError(wrong)
        return checked

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
    """Read the body; a large one waits until there is room for it, and until then the client cannot send it."""
    await _reserve_body(request)
    parts, more = [], True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "the client left before the end of the body")
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _reserve_body(request: Request) -> None:
    settings: Settings = request.app.state.settings
    declared = dict(request.scope["headers"]).get(b"content-length", b"")
    length = min(int(declared) if declared.isdigit() else settings.max_body_bytes, settings.max_body_bytes)
    if length <= _SMALL_BODY:
        return
    bodies: Budget = request.app.state.resources.bodies
    try:
        async with asyncio.timeout(settings.request_timeout_ms / 1000):
            await bodies.reserve(length)
    except TimeoutError:
        raise QueueFull(never=False, retry_after=1) from None
    resources_of(request).callback(bodies.release, length)


_TIMEOUT = TypeAdapter(Timeout)


def _timeout_of(header: bytes | None) -> int | None:
    if header is None:
        return None
    try:
        return _TIMEOUT.validate_python(header.decode("latin-1"))
    except ValidationError as error:
        wrong = [{**each, "loc": ("header", TIMEOUT_HEADER)} for each in error.errors()]
        raise RequestValidationError(wrong) from None
