"""Endpoints of tasks that this project does not have: registered from outside, served by a model of that task."""

import asyncio
import contextlib
import math
import types
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
from fastapi import APIRouter, Depends, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel

import models.registry
from models import QueryError
from models.registry import Registry
from service.engine.budget import OverBudget
from service.engine.caller import Timing
from service.engine.client import Engine
from service.engine.resources import Resources
from service.http.accounts import account_of
from service.http.answer import Answer
from service.http.endpoint import ENDPOINTS, answer
from service.http.requests import Body, Deadline, ModelName, Priority, Texts
from service.http.route import ModelRoute
from service.observability.metrics import Metrics
from service.server.app import create_app
from service.settings import Settings


@dataclass
class Query:
    """A text, cut into words that are computed one by one."""

    words: list[str]

    @property
    def result_items(self):
        return len(self.words)

    def parts(self):
        return self.words


class Model:
    """Counts the letters of words."""

    batch_functions = types.MappingProxyType({"count": None, "letters": None})

    def estimated_tokens(self, operation, inputs):
        return len(inputs)

    def query(self, text):
        if not text:
            raise QueryError("empty")
        return Query(text.split())

    def result(self, query, outputs):
        return dict(zip(query.words, outputs, strict=True))


class Found(BaseModel):
    letters: dict[str, int]


class Batcher:
    computations = None

    def __init__(self):
        self.calls = []

    def preparing(self, operation, items, deadline, tokens, flow):
        self.calls.append(("preparing", operation, items, tokens))
        return contextlib.nullcontext()

    async def submit(self, operation, parts, deadline, urgency, flow):
        self.calls.append(("submit", operation, list(parts), urgency))
        return [len(part) for part in parts], Timing(0.0, 0.0, 1)


class ServedModel:
    def __init__(self):
        self.model, self.batcher, self.held = Model(), Batcher(), 0
        self.manifest = SimpleNamespace(name="letters", version=1)
        self.rejections = []
        self.observer = self

    def tokenized(self, seconds):
        pass

    def rejected(self, reason, items):
        self.rejections.append((reason, items))

    def hold(self):
        self.held += 1

    def release(self):
        self.held -= 1


pytestmark = pytest.mark.filterwarnings("ignore:list the operation:DeprecationWarning")


@pytest.fixture
def served():
    return ServedModel()


@pytest.fixture
def request_(served):
    settings = Settings(max_result_items=10)
    resources = Resources(settings)
    found = []

    def find(name, operation, reads):
        found.append((name, operation, reads))
        return served

    engine = Engine(settings, Metrics(), SimpleNamespace(find=find), resources)
    state = SimpleNamespace(settings=settings, resources=resources, engine=engine)
    request = Request({"type": "http", "state": {}, "headers": [], "app": SimpleNamespace(state=state)})
    request.found = found
    yield request
    resources.close()


def run(request, texts, **options):
    async def call():
        given = {"model": None, "timeout_ms": None, "priority": "u=1", **options}
        found = await answer(request, "count", texts, lambda model, text: model.query(text), found_of, **given)
        return found, list(found.results)

    def found_of(letters):
        return Found(letters=letters)

    return asyncio.run(call())


def test_parts_are_submitted_together_and_results_made_of_their_own_outputs(request_, served):
    found, results = run(request_, ["two words", "one"], model="letters")
    assert request_.found == [("letters", "count", "text")]
    assert served.batcher.calls == [("preparing", "count", 2, 2), ("submit", "count", ["two", "words", "one"], 1)]
    assert [result.letters for result in results] == [{"two": 3, "words": 5}, {"one": 3}]
    assert (found.items, found.served) == (3, served)


def test_the_model_is_held_and_results_are_reserved_until_the_answer_is_sent(request_, served):
    run(request_, ["two words"])
    budget = request_.app.state.resources.results.of(2)
    assert (served.held, budget.used) == (1, 2)
    account_of(request_.scope).close()
    assert (served.held, budget.used) == (0, 0)


def test_too_many_results_are_refused_before_they_are_computed(request_, served):
    with pytest.raises(OverBudget, match="needs 11 result items"):
        run(request_, [" ".join("abcdefghijk")])
    assert served.batcher.calls == [("preparing", "count", 1, 1)]


def test_too_many_known_results_are_refused_before_a_query_is_made(request_, served):
    with pytest.raises(OverBudget, match="needs 12 result items"):
        run(request_, ["a", "b"], items_per_input=lambda model: 6)
    assert served.batcher.calls == []


def test_wrong_inputs_are_counted_and_reserve_nothing(request_, served):
    with pytest.raises(QueryError, match="empty"):
        run(request_, ["a", ""])
    assert served.rejections == [("invalid", 2)]
    assert request_.app.state.resources.results.of(1).used == 0


# ---- the open registry ----

router = APIRouter(prefix="/v1", route_class=ModelRoute)


class CountRequest(Body):
    text: Texts
    model: ModelName = None


class CountResponse(BaseModel):
    results: list[Found]


@router.post("/count", response_model=CountResponse)
async def count(body: CountRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None) -> Answer:
    """Count letters."""
    return await answer(
        request,
        "count",
        body.text,
        lambda model, text: model.query(text),
        lambda letters: Found(letters=letters),
        model=body.model,
        timeout_ms=timeout_ms,
        priority=priority,
    )


@pytest.fixture
def installed(monkeypatch):
    """Another distribution registers endpoints; endpoints are looked up anew."""

    def install(value):
        class Entry(EntryPoint):
            def load(self):
                return value

        def entry_points(group):
            return [Entry("letters", "their.module:router", group)] if group == "softserve.service.tasks" else []

        fresh = Registry("service.http.v1", "endpoints", group="softserve.service.tasks")
        fresh._values = {name: ENDPOINTS[name] for name in ENDPOINTS.names()}
        monkeypatch.setattr(models.registry, "entry_points", entry_points)
        monkeypatch.setattr("service.server.app.ENDPOINTS", fresh)

    return install


def test_the_endpoints_of_this_project_are_registered_by_their_tasks():
    assert ENDPOINTS.group == "softserve.service.tasks"
    assert ENDPOINTS.names() == ["operations", "rescoring"]


def test_an_entry_point_adds_an_endpoint(installed, served, monkeypatch):
    installed(router)
    app = create_app(Settings(models=("next-word:4",), threads=1))
    monkeypatch.setattr(app.state.served_models, "find", lambda name, operation, reads: served)
    client = TestClient(app)
    response = client.post("/v1/count", json={"text": ["two words", "one"]})
    assert response.json() == {
        "model": "letters",
        "version": 1,
        "results": [{"letters": {"two": 3, "words": 5}}, {"letters": {"one": 3}}],
    }
    assert {"/v1/count", "/v1/score", "/v1/classify"} <= set(client.get("/openapi.json").json()["paths"])


def test_a_router_with_dependencies_that_would_be_ignored_is_refused(installed):
    outer = APIRouter()
    outer.include_router(router, dependencies=[Depends(math.floor)])
    installed(outer)
    with pytest.raises(TypeError, match="/v1/count has dependencies, which a ModelRoute does not resolve"):
        create_app(Settings(models=("next-word:4",)))
