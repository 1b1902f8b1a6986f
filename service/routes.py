"""The route of a request's path, as the router determines it."""

from collections.abc import Sequence
from typing import Any

from fastapi.routing import iter_route_contexts
from starlette._utils import get_route_path
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

__all__ = ["endpoint_of", "route_path"]


def route_path(scope: Scope) -> str:
    """Return the path that the router matches: without the prefix of a proxy or of an application it is mounted in.

    Code that depends on the path must use this function, which is the router's own (private in starlette, used by
    FastAPI too). `scope["path"]` is another path wherever there is a prefix.
    """
    return get_route_path(scope)


def endpoint_of(scope: Scope) -> str:
    """Return the template of a request's route, not its path, which holds what clients send.

    A request that was refused before it was routed has the route that it would have had; "unmatched" where no route
    matches.
    """
    if "route" not in scope:
        app = scope.get("app")
        scope["route"] = None if app is None else _match(app.routes, scope)
    return getattr(scope["route"], "path", "unmatched")


def _match(routes: Sequence[BaseRoute], scope: Scope) -> BaseRoute | None:
    """Return the first route of a request's path and method, else the first of its path."""
    partial: BaseRoute | None = None
    for context in iter_route_contexts(routes):
        match: Any = context.matches(scope)[0]
        if match is Match.FULL:
            return context.original_route
        if match is Match.PARTIAL and partial is None:
            partial = context.original_route
    return partial
