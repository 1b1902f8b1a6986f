import json

import pytest
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from pydantic import BaseModel

from models import NativeError, QueryError, TextTooLongError, UnknownModelError
from service.engine.batcher import DeadlineExceeded, Stopped
from service.engine.computations import ComputationTimeout, ModelStuck
from service.engine.queue import QueueFull
from service.engine.served_models import NotReady
from service.http.errors import Failure, install_error_handlers, problem_response
from service.http.middleware import RequestMiddleware
from service.observability.metrics import Metrics


class Body(BaseModel):
    number: int
    text: str = ""


@pytest.fixture
def raising():
    """A client of an application whose one endpoint raises the given exception."""
    app = FastAPI()
    app.add_middleware(RequestMiddleware, metrics=Metrics(), max_body_bytes=1000)
    install_error_handlers(app)
    errors = []

    @app.post("/")
    async def endpoint(body: Body) -> None:
        raise errors.pop()

    client = TestClient(app, raise_server_exceptions=False)

    def post(error):
        errors.append(error)
        return client.post("/", json={"number": 1}, headers={"X-Request-Id": "mine"})

    post.client = client
    return post


def test_a_problem_has_the_members_of_rfc_9457():
    response = problem_response("id", Failure(404, "no such model", {"Retry-After": "1"}))
    assert (response.status_code, response.media_type) == (404, "application/problem+json")
    assert response.headers["retry-after"] == "1"
    assert json.loads(response.body) == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "no such model",
        "request_id": "id",
    }


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (UnknownModelError("x", ["a:1"]), 404, "unknown model 'x'; known models: a:1"),
        (ModelStuck(), 503, "a computation of the model does not return, so that the model answers nothing"),
        (
            ComputationTimeout(2.5),
            503,
            "the model has computed for more than 2.5 seconds (--computation-timeout) and was interrupted",
        ),
        (QueryError("bad top_k"), 422, "bad top_k"),
        (TextTooLongError(9, 8), 422, "the text has 9 tokens; the model's limit is 8"),
        (DeadlineExceeded(), 504, "the deadline passed before the request was computed"),
        (NotReady(), 503, "models are being loaded"),
        (Stopped(), 503, "the service is shutting down"),
        (QueueFull(never=False), 429, "the model's queue is full"),
        (QueueFull(never=True), 413, "more texts or tokens than the queue"),
        (HTTPException(418, "short and stout"), 418, "short and stout"),
        (NativeError("the tokenizer failed: panic"), 500, "the tokenizer failed: panic"),
        (ArithmeticError("secret"), 500, "an error in the service; its log has the details"),
    ],
)
def test_every_error_is_a_problem(raising, detail_of, error, status, detail):
    response = raising(error)
    assert detail in detail_of(response, status)
    assert response.json()["request_id"] == "mine"


def test_a_bug_gives_nothing_away(raising):
    assert "secret" not in raising(ArithmeticError("secret")).text


@pytest.mark.parametrize(
    ("error", "header", "value"),
    [
        (NotReady(), "retry-after", "1"),
        (QueueFull(never=False), "retry-after", "1"),
        (Stopped(), "connection", "close"),
        (HTTPException(401, headers={"WWW-Authenticate": "Bearer"}), "www-authenticate", "Bearer"),
    ],
)
def test_errors_come_with_their_headers(raising, error, header, value):
    assert raising(error).headers[header] == value


def test_what_never_fits_is_not_to_be_retried(raising):
    assert "retry-after" not in raising(QueueFull(never=True)).headers


def test_every_wrong_field_is_named(raising, detail_of):
    detail = detail_of(raising.client.post("/", json={"number": "x", "text": 5}), 422)
    assert {part.partition(":")[0] for part in detail.split("; ")} == {"number", "text"}


@pytest.mark.parametrize("content", [b"{", b"[1]", b"", b"nope", b"\xff"])
def test_what_is_no_json_object_is_malformed(raising, detail_of, content):
    response = raising.client.post("/", content=content, headers={"Content-Type": "application/json"})
    assert "body" in detail_of(response, 400)


def test_the_wrong_content_type_is_named(raising, detail_of):
    detail = detail_of(raising.client.post("/", content=b'{"number": 1}', headers={"Content-Type": "text/csv"}), 400)
    assert "application/json" in detail
    assert "text/csv" in detail
