"""schemathesis asks a real server everything that its OpenAPI document allows, and much that it does not."""

import math
import threading
from typing import get_type_hints

import pytest
import schemathesis
import uvicorn
from fastapi.routing import iter_route_contexts
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.server.app import create_app
from service.settings import Settings

APP = create_app(Settings(models=("next-word:4",)))
OPERATIONS = sorted(
    (method.upper(), path) for path, operations in APP.openapi()["paths"].items() for method in operations
)


@pytest.mark.parametrize("path", [path for method, path in OPERATIONS if method == "POST"])
def test_every_request_has_examples(path):
    (context,) = [each for each in iter_route_contexts(APP.routes) if each.original_route.path == path]
    model = get_type_hints(context.original_route.endpoint)["body"]
    examples = APP.openapi()["components"]["schemas"][model.__name__]["examples"]
    assert examples
    for example in examples:
        model.model_validate(example)


@pytest.fixture(scope="module")
def document(wait_until):
    """The document of a server with all bundled models."""
    app = create_app(Settings(threads=1, max_body_bytes=20_000))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started and app.state.served_models.ready)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
    finally:
        server.should_exit = True
        thread.join()


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ASKED = [
    (method, path, mode)
    for method, path in OPERATIONS
    for mode in GenerationMode
    if method == "POST" or mode == GenerationMode.POSITIVE  # nothing is wrong with a path that takes nothing
]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("method", "path", "mode"), ASKED, ids=[f"{m} {path} {mode.value}" for m, path, mode in ASKED])
def test_every_answer_is_as_documented(document, method, path, mode):
    @given(case=document[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def ask(case):
        response = case.call()
        late = response.status_code == 504 and _seconds_given(case.headers or {}) < 1
        case.validate_response(response, checks=[check for check in CHECKS if not late or check != not_a_server_error])

    ask()


def _seconds_given(headers):
    """Who asks for an answer within a moment may be told that there was none: 504, as documented."""
    given = {name.lower(): str(value) for name, value in headers.items()}.get("x-request-timeout-ms", "")
    return int(given) / 1000 if given.isdecimal() else math.inf
