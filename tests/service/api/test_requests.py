"""What the endpoints share, without an application."""

import asyncio
import contextlib
import math
import threading
import time
from types import SimpleNamespace

import fastapi
import pytest
from pydantic import BaseModel, ValidationError

from models import QueryError
from models.decoding.beam_search import SearchOptions
from service.api.requests import Body, ModelName, Texts, deadline_of, note_timing, queries_of, server_timing, urgency_of
from service.api.search import SearchBody
from service.engine.batcher import DeadlineExceeded, Timing
from service.engine.budget import ResultBudget
from service.engine.preparation import Preparation
from service.engine.queue import QueueFull
from service.settings import Settings


class Request(Body):
    text: Texts
    model: ModelName = None


class Recorder:
    def __init__(self):
        self.rejections, self.seconds = [], []

    def rejected(self, reason, items):
        self.rejections.append((reason, items))

    def tokenized(self, seconds):
        self.seconds.append(seconds)


@pytest.fixture
def served():
    @contextlib.contextmanager
    def preparing(operation, items, deadline, tokens):
        if items > 3:
            raise QueueFull(never=True)
        yield

    model = SimpleNamespace(estimated_tokens=lambda operation, inputs: 1)
    return SimpleNamespace(
        observer=Recorder(), batcher=SimpleNamespace(preparing=preparing, computations=None), model=model
    )


@pytest.fixture
def request_():
    resources = SimpleNamespace(preparation=Preparation(), results=ResultBudget(100))
    state = SimpleNamespace(resources=resources, settings=Settings())
    yield SimpleNamespace(app=SimpleNamespace(state=state), scope={"state": {}})
    resources.preparation.close()


def asked(default_ms):
    state = SimpleNamespace(settings=Settings(request_timeout_ms=default_ms))
    return SimpleNamespace(app=SimpleNamespace(state=state), scope={"state": {}})


@pytest.mark.parametrize(("given", "texts"), [("a", ["a"]), ("", [""]), (["a", ""], ["a", ""])])
def test_one_text_is_a_list_of_one(given, texts):
    assert Request.model_validate({"text": given}).text == texts


@pytest.mark.parametrize("given", [None, 5, [], {}, ["a", None], [["a"]], "\ud800", ("a",)])
def test_what_is_no_text_is_named(given):
    with pytest.raises(ValidationError) as caught:
        Request.model_validate({"text": given})
    assert {error["loc"][0] for error in caught.value.errors()} == {"text"}


def test_unknown_fields_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        Request.model_validate({"text": "a", "texts": "b"})


def test_the_schema_says_that_one_text_is_enough():
    kinds = Request.model_json_schema()["properties"]["text"]["anyOf"]
    assert [kind["type"] for kind in kinds] == ["string", "array"]
    assert issubclass(Request, BaseModel)


def test_the_deadline_is_the_requests_or_the_settings():
    for given, seconds in ((None, 7.0), (250, 0.25)):
        before = time.monotonic()
        deadline = deadline_of(asked(7000), given)
        assert before + seconds <= deadline <= time.monotonic() + seconds


def test_timing_is_said_in_milliseconds():
    app = SimpleNamespace(state=SimpleNamespace(settings=Settings()))
    request = fastapi.Request({"type": "http", "state": {}, "app": app})
    assert server_timing(request) == {}
    note_timing(request, 0.002, Timing(0.0015, 1.25, 7))
    assert (request.state.tokenized, request.state.timing.batch) == (0.002, 7)
    assert server_timing(request) == {"Server-Timing": "queue;dur=1.500, tokenize;dur=2.000, infer;dur=1250.000"}


@pytest.mark.parametrize(
    ("texts", "inline"), [(["a", "b"], True), (["a" * 20_000], True), (["a" * 20_000, "b"], False)]
)
def test_long_texts_are_tokenized_on_another_thread(request_, served, texts, inline):
    threads = []

    def query(text):
        threads.append(threading.get_ident())
        return len(text)

    queries, seconds = asyncio.run(queries_of(request_, served, "count", query, texts, math.inf))
    assert queries == [len(text) for text in texts]
    assert (set(threads) == {threading.get_ident()}) == inline
    assert served.observer.seconds == [seconds]


@pytest.mark.parametrize("long", [False, True])
def test_refused_texts_are_counted(request_, served, long):
    def query(text):
        raise QueryError("no")

    with pytest.raises(QueryError, match="no"):
        asyncio.run(queries_of(request_, served, "count", query, ["a" * 30_000 if long else "a", "b"], math.inf))
    assert served.observer.rejections == [("invalid", 2)]
    assert served.observer.seconds == []


def test_more_than_could_ever_wait_is_refused_before_it_is_read(request_, served):
    with pytest.raises(QueueFull) as caught:
        asyncio.run(queries_of(request_, served, "count", pytest.fail, ["a"] * 4, math.inf))
    assert caught.value.never


def test_the_deadline_holds_while_texts_are_read(request_, served):
    read, deadline = [], time.monotonic() + 0.5

    def query(text):
        read.append(text)
        time.sleep(max(0, deadline - time.monotonic()) + 0.01)

    with pytest.raises(DeadlineExceeded):
        asyncio.run(queries_of(request_, served, "count", query, ["a", "b", "c"], deadline, images=True))
    assert read == ["a"]
    assert served.observer.rejections == [("expired", 3)]


def test_heavy_inputs_are_read_elsewhere_some_requests_at_a_time(request_, served):
    threads, running, most = set(), [], []

    def query(text):
        threads.add(threading.get_ident())
        running.append(text)
        most.append(len(running))
        time.sleep(0.02)
        running.pop()

    async def all_at_once():
        await asyncio.gather(
            *(queries_of(request_, served, "count", query, ["a"], math.inf, images=True) for _ in range(6))
        )

    asyncio.run(all_at_once())
    assert threading.get_ident() not in threads
    assert max(most) <= 2


@pytest.mark.parametrize(
    ("header", "urgency"),
    [(None, 3), ("u=0", 0), ("u=7, i", 7), ("i, u=5", 5), (" u=1 ", 1), ("u=2;x=1", 2)]
    + [(rubbish, 3) for rubbish in ("", "u=8", "u=-1", "u=12", "u", "0", "high", "uu=1", "u=1x", "\x00")],
)
def test_urgency_is_what_the_header_says_or_the_usual_one(header, urgency):
    assert urgency_of(header) == urgency


def test_what_a_body_says_is_what_is_searched():
    body = SearchBody(text="a", beam_size=4, n_best=2, length_penalty=0.5, temperature=2.0, seed=7, sparse=True)
    expected = SearchOptions(n_best=2, length_penalty=0.5, temperature=2.0, seed=7, sparse=True)
    assert body.options() == expected
    assert SearchBody(text=["a"]).options() == SearchOptions()


@pytest.mark.parametrize("wrong", [{"beam_size": 0}, {"n_best": 0}, {"length_penalty": 11.0}, {"seed": -1}], ids=str)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(ValidationError):
        SearchBody(text="a", **wrong)
