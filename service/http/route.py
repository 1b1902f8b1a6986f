"""Routes of endpoints that run models, which do without FastAPI's resolution of parameters.

FastAPI resolves the parameters of an endpoint by a general procedure that costs more than a small model. These
endpoints all take a JSON body and two headers, on paths without parameters. FastAPI still routes to them, and describes
them in the OpenAPI document.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, get_type_hints

from fastapi import Request, Response, Security, params
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.answer import Answer, ChunkedResponse, encoded
from service.http.body import checked_body, read_body
from service.http.errors import Failing, error_response, failure_of
from service.http.requests import server_timing, timeout_of
from service.http.routes import route_path

__all__ = ["SHOWN_KEY", "ModelRoute", "RouterBypass", "check_dependencies"]

SHOWN_KEY = Security(HTTPBearer(scheme_name="bearer", auto_error=False))
"""The API key in the OpenAPI document. It computes nothing: `AuthMiddleware` has checked the key before."""

_PARAMETERS = ("body", "request", "timeout_ms", "priority")


class Endpoint(Protocol):
    """An endpoint that runs a model: a checked body, a deadline and an urgency in, the answer out."""

    def __call__(
        self, body: Any, request: Request, timeout_ms: int | None, priority: str | None
    ) -> Awaitable[Answer[Any] | BaseModel]: ...


class ModelRoute(APIRoute):
    """A route of an `Endpoint`, whose parameter `body` is annotated with a pydantic model.

    Answers and errors are those of FastAPI. Dependencies and other parameters, which it does not resolve, are refused.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        dependencies: Sequence[params.Depends] | None = None,
        **options: Any,
    ) -> None:
        """Create a route; raises `TypeError` for dependencies, and for parameters other than those of `Endpoint`."""
        if (found := tuple(inspect.signature(endpoint).parameters)) != _PARAMETERS:
            raise TypeError(f"{path} must take {', '.join(_PARAMETERS)}, not {', '.join(found) or 'nothing'}")
        _refuse_dependencies(path, dependencies or ())
        self._body_model: type[BaseModel] = get_type_hints(endpoint).get("body", object)
        if not issubclass(self._body_model, BaseModel):
            raise TypeError(f"the parameter body of {path} must be annotated with a pydantic model")
        super().__init__(path, endpoint, dependencies=dependencies, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.respond

    async def respond(self, request: Request) -> Response:
        """Run the endpoint and return the response; raises its errors, and `RequestValidationError`."""
        endpoint: Endpoint = self.endpoint
        headers = dict(request.scope["headers"])
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise HTTPException(415, "compressed bodies are not accepted", {"Accept-Encoding": "identity"})
        content = await read_body(request)
        kind = headers.get(b"content-type", b"").decode("latin-1")
        body = checked_body(self._body_model, content, kind, request.app.state.settings.max_body_values)
        timeout = timeout_of(headers)
        priority = headers.get(b"priority", b"").decode("latin-1")
        answer = await endpoint(body, request, timeout, priority)
        chunks = await encoded(request, answer, exclude_none=self.response_model_exclude_none)
        if len(chunks) == 1:
            return Response(chunks[0], media_type="application/json", headers=server_timing(request))
        return ChunkedResponse(chunks, server_timing(request))


class RouterBypass:
    """Middleware that passes `POST` requests on the paths of model routes to these, past the router.

    Through FastAPI's router a request to the bundled int8 classifier takes 7 % more processor time, 2.76 instead of
    2.57 ms, and the server answers 5 % fewer requests/s: medians of six interleaved runs of the load generator with 64
    connections on two cores. With a plain `Route` of starlette in front of FastAPI's instead, the application has two
    routes of each path, and an endpoint that computes nothing takes some 15 % more processor time.
    """

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
            failure = failure_of(Failing.of(scope), error)
            if failure is None:
                raise
            response = error_response(scope, failure)
        await response(scope, receive, send)


def check_dependencies(routes: Sequence[BaseRoute]) -> None:
    """Raise `TypeError` where a router was included with dependencies that its model routes would not resolve."""
    for context in iter_route_contexts(routes):
        if isinstance(context.original_route, ModelRoute):
            _refuse_dependencies(context.original_route.path, context.dependencies)


def _refuse_dependencies(path: str, dependencies: Iterable[params.Depends]) -> None:
    if any(dependency is not SHOWN_KEY for dependency in dependencies):
        raise TypeError(f"{path} has dependencies, which a ModelRoute does not resolve; use a middleware or APIRoute")
