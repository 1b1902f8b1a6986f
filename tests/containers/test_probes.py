"""Probes and scrapes are not counted as requests by the rules and the dashboard: they would dilute the error ratio."""

import re

import pytest
from fastapi.routing import iter_route_contexts

from service.protocols.open_inference.grpc import server
from service.server.app import create_app
from service.settings import Settings
from service.web.pages import web_router
from tests.containers.files import expressions


def patterns():
    """The regular expressions of the endpoints that expressions leave out; Prometheus anchors them."""
    found = {pattern for each in expressions().values() for pattern in re.findall(r'endpoint!~"(.+?)"', each)}
    assert found
    return found


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    """Every endpoint of the service, and those of them that need no key, which are probes, without the pages."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("user-key-of-some-length")
    app = create_app(Settings(api_keys=keys))
    paths = {getattr(context.original_route, "path", "") for context in iter_route_contexts(app.routes)}
    paths -= {"/openapi.json", *(route.path for route in web_router(playground=True).routes)}
    guard = app.state.guard
    scopes = {path: {"type": "http", "path": re.sub(r"\{.+?\}", "a", path), "headers": []} for path in paths}
    probes = {path for path, scope in scopes.items() if guard.allows(scope) and path not in guard._key_in_body}
    return paths, probes


@pytest.mark.parametrize("pattern", patterns())
def test_the_rules_and_the_dashboard_leave_out_every_probe_and_nothing_else(pattern, endpoints):
    paths, probes = endpoints
    assert {"/readyz", "/metrics", "/v2/models/{model}/ready", "/hf/{model}/health"} <= probes
    assert {path for path in paths if re.fullmatch(pattern, path)} == probes


@pytest.mark.parametrize("pattern", patterns())
def test_probes_by_grpc_are_left_out_too(pattern):
    left_out = {name for name in server._METHODS if re.fullmatch(pattern, f"/{server._SERVICE}/{name}")}
    assert left_out == server._OPEN
