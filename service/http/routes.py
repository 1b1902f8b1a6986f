"""The route of a request's path, as the router determines it."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from fastapi.routing import iter_route_contexts
from starlette._utils import get_route_path
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

__all__ = ["allowed_methods", "endpoint_of", "nearest_paths", "route_path", "serving_path"]

_LONGEST_PATH = 100
"""Characters of a path up to which similar ones are searched for, which takes some 0.3 ms."""


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


def allowed_methods(scope: Scope) -> list[str]:
    """Return the methods that the path of a request is served with, sorted."""
    methods: set[str] = set()
    for context in iter_route_contexts(scope["app"].routes):
        if context.matches(scope)[0] is not Match.NONE:
            methods.update(getattr(context.original_route, "methods", None) or ())
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def nearest_paths(scope: Scope) -> list[str]:
    """Return the templates of the served paths that are most like that of a request, at most three."""
    path = route_path(scope)
    return get_close_matches(path, set(_paths(scope["app"])), 3) if len(path) <= _LONGEST_PATH else []


def serving_path(app: Any, operation: str) -> str | None:
    """Return the native path of an operation, such as `/v1/classify`; None where it is not served."""
    return next((path for path in _paths(app) if path.startswith(f"/v1/{operation}")), None)


def _paths(app: Any) -> Iterable[str]:
    routes = (context.original_route for context in iter_route_contexts(app.routes))
    return (route.path for route in routes if hasattr(route, "path"))
