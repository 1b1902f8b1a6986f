"""Endpoints that run models, reached past the router and through it: the same answers."""

import asyncio
from types import SimpleNamespace
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from models import QueryError
from service.engine.resources import Resources
from service.http.errors import ClientDisconnected, install_error_handlers
from service.http.middleware import RequestMiddleware
from service.http.requests import Body, Deadline, Priority
from service.http.route import SHOWN_KEY, ModelRoute, RouterBypass, check_dependencies
from service.observability.metrics import Metrics
from service.settings import Settings


class Question(Body):
    number: Annotated[int, Field(ge=0)]


class Answer(BaseModel):
    number: int
    timeout_ms: int | None = None
    priority: str | None = None


router = APIRouter(prefix="/v1", route_class=ModelRoute)


@router.post("/whole")
async def whole(body: Question, request: Request, timeout_ms: Deadline = None, priority: Priority = None) -> Answer:
    if body.number == 13:
        raise QueryError("not thirteen")
    if body.number == 14:
        raise HTTPException(409, "not now")
    if body.number == 15:
        raise RuntimeError("a bug")
    return Answer(number=body.number + 1, timeout_ms=timeout_ms, priority=priority)


@router.post("/brief", response_model_exclude_none=True)
async def brief(body: Question, request: Request, timeout_ms: Deadline = None, priority: Priority = None) -> Answer:
    return Answer(number=body.number, timeout_ms=timeout_ms)


@pytest.fixture(params=[True, False], ids=["bypass", "router"])
def client(request):
    app = FastAPI()
    if request.param:
        app.add_middleware(RouterBypass, routes=router.routes)
    app.add_middleware(RequestMiddleware, metrics=Metrics(), max_body_bytes=1000)
    install_error_handlers(app)
    app.state.settings = settings = Settings(max_body_bytes=1000)
    app.state.resources = Resources(settings)
    app.include_router(router)
    return TestClient(app, raise_server_exceptions=False)


def test_the_endpoint_gets_a_checked_body_and_both_headers(client):
    answer = client.post("/v1/whole", json={"number": 1}, headers={"X-Request-Timeout-Ms": "250", "Priority": "u=1"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {"number": 2, "timeout_ms": 250, "priority": "u=1"}


def test_null_is_left_out_where_the_route_says_so(client):
    assert client.post("/v1/whole", json={"number": 1}).json() == {"number": 2, "timeout_ms": None, "priority": ""}
    assert client.post("/v1/brief", json={"number": 1}).json() == {"number": 1}


@pytest.mark.parametrize(
    ("content", "kind", "status", "detail"),
    [
        (b"", "application/json", 400, "the body must be a JSON object"),
        (b"[1]", "application/json", 400, "the body must be a JSON object"),
        (b"{", "application/json", 400, "the body is not JSON: Expecting property name"),
        (b'{"number": "\xff"}', "application/json", 400, "the body is not UTF-8 from byte 12 on"),
        (b"[" * 900, "application/json", 400, "the body is not JSON"),
        (b'{"number": 1}', "text/plain", 400, "sent with Content-Type: application/json, not text/plain"),
        (b'{"number": 1}', "application/jsonp", 400, "the body must be a JSON object"),
        (b'{"number": -1}', "application/json", 422, "number: must be at least 0"),
        (b'{"number": 1, "x": 2}', "application/json", 422, "x: unknown field (known: "),
        (b'{"number": 13}', "application/json", 422, "not thirteen"),
        (b'{"number": 14}', "application/json", 409, "not now"),
        (b'{"number": 15}', "application/json", 500, "an error in the service"),
        (b'{"number": 1' + b" " * 1000 + b"}", "application/json", 413, "larger than the 1000 bytes"),
    ],
)
def test_errors_are_problems(client, content, kind, status, detail):
    answer = client.post("/v1/whole", content=content, headers={"Content-Type": kind, "X-Request-Id": "mine"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (status, "mine")
    assert detail in answer.json()["detail"]
    assert answer.json()["request_id"] == "mine"


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("br, gzip", 415), ("identity", 200)])
def test_compressed_bodies_are_refused_unread(client, encoding, status):
    answer = client.post("/v1/brief", json={"number": 1}, headers={"Content-Encoding": encoding})
    assert answer.status_code == status
    assert status == 200 or answer.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"])
def test_json_may_be_called_by_any_of_its_names(client, kind):
    assert client.post("/v1/brief", content=b'{"number": 1}', headers={"Content-Type": kind}).json() == {"number": 1}


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "", "1" * 5000])
def test_a_wrong_deadline_is_named(client, value):
    answer = client.post("/v1/whole", json={"number": 1}, headers={"X-Request-Timeout-Ms": value})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("X-Request-Timeout-Ms: ")


def test_other_methods_and_paths_are_the_routers(client):
    assert client.get("/v1/whole").status_code == 405
    assert client.post("/v1/whole/", follow_redirects=False).status_code == 307
    assert client.post("/v1/other").status_code == 404


def test_the_document_describes_the_endpoint(client):
    operation = client.get("/openapi.json").json()["paths"]["/v1/whole"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/Question")
    assert {parameter["name"] for parameter in operation["parameters"]} == {"X-Request-Timeout-Ms", "priority"}


def ignored() -> None:
    raise AssertionError


async def no_body(request: Request, timeout_ms: Deadline = None, priority: Priority = None) -> Answer:
    raise AssertionError


async def one_more(
    body: Question, request: Request, timeout_ms: Deadline = None, priority: Priority = None, extra: int = 0
) -> Answer:
    raise AssertionError


async def no_model(body: dict, request: Request, timeout_ms: Deadline = None, priority: Priority = None) -> Answer:
    raise AssertionError


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        (no_body, "/v1/x must take body, request, timeout_ms, priority, not request, timeout_ms, priority"),
        (one_more, "not body, request, timeout_ms, priority, extra"),
        (no_model, "the parameter body of /v1/x must be annotated with a pydantic model"),
    ],
)
def test_parameters_that_would_be_ignored_are_refused(endpoint, problem):
    with pytest.raises(TypeError, match=problem):
        APIRouter(prefix="/v1", route_class=ModelRoute).post("/x")(endpoint)


def test_dependencies_that_would_be_ignored_are_refused():
    refused = "/v1/x has dependencies, which a ModelRoute does not resolve"
    with pytest.raises(TypeError, match=refused):
        APIRouter(prefix="/v1", route_class=ModelRoute).post("/x", dependencies=[Depends(ignored)])(whole)
    with pytest.raises(TypeError, match=refused):
        APIRouter(prefix="/v1", route_class=ModelRoute, dependencies=[Depends(ignored)]).post("/x")(whole)
    for routes in (FastAPI(dependencies=[Depends(ignored)]), FastAPI()):
        routes.include_router(router, dependencies=[Depends(ignored)] if not routes.router.dependencies else [])
        with pytest.raises(TypeError, match="/v1/whole has dependencies"):
            check_dependencies(routes.routes)


def test_the_key_of_the_document_is_no_dependency_to_resolve(client):
    app = FastAPI()
    app.include_router(router, dependencies=[SHOWN_KEY])
    check_dependencies(app.routes)
    assert app.openapi()["paths"]["/v1/whole"]["post"]["security"] == [{"bearer": []}]


def test_a_body_that_breaks_off_is_no_bug():
    route = next(route for route in router.routes if isinstance(route, ModelRoute))
    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    app = SimpleNamespace(state=SimpleNamespace(settings=Settings(max_body_bytes=10)))
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/whole", "headers": headers, "app": app, "state": {}}
    with pytest.raises(ClientDisconnected):
        asyncio.run(route.respond(Request(scope, receive)))
