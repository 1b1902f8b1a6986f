"""Bodies: read within their budget, parsed and checked in bounded time, never echoed."""

import asyncio
import gc
import json
import time
from types import SimpleNamespace
from typing import Annotated

import pytest
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from starlette.exceptions import HTTPException

from service.api.body import checked_body, read_body
from service.api.requests import Body, Texts, resources_of
from service.engine.budget import Budget
from service.engine.queue import QueueFull
from service.errors import failure_of
from service.settings import Settings

JSON = "application/json"


class Question(Body):
    text: Texts
    number: Annotated[int, Field(ge=0)] = 0


def detail_of(content):
    """The problem that a body is answered with."""
    with pytest.raises((RequestValidationError, HTTPException)) as caught:
        checked_body(Question, content, JSON)
    scope = {"type": "http", "headers": [(b"content-type", b"application/json")], "state": {"request_id": "1"}}
    return failure_of(Request(scope), caught.value).detail


def request_of(*parts, length=None, bodies=None, timeout_ms=1000):
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts[:-1]]
    messages.append({"type": "http.request", "body": parts[-1]})

    async def receive():
        return messages.pop(0)

    trimmer = SimpleNamespace(heap_trimmer=SimpleNamespace(request=lambda: None))
    state = SimpleNamespace(
        settings=Settings(request_timeout_ms=timeout_ms),
        resources=SimpleNamespace(bodies=bodies or Budget(1 << 20, "bytes")),
        registry=trimmer,
    )
    headers = [] if length is None else [(b"content-length", b"%d" % length)]
    scope = {"type": "http", "headers": headers, "state": {}, "app": SimpleNamespace(state=state)}
    return Request(scope, receive)


def test_a_body_is_read_and_checked():
    assert asyncio.run(read_body(request_of(b'{"text":', b'"a"}'))) == b'{"text":"a"}'
    assert checked_body(Question, b'{"text":"a","number":3}', JSON) == Question(text=["a"], number=3)


@pytest.mark.parametrize(("length", "reserved"), [(65_536, 0), (65_537, 65_537), (None, 1 << 20), (1 << 40, 1 << 20)])
def test_large_bodies_reserve_their_length_until_the_request_is_over(length, reserved):
    bodies = Budget(1 << 20, "bytes")
    request = request_of(b"{}", length=length, bodies=bodies)
    asyncio.run(read_body(request))
    assert bodies.used == reserved
    with resources_of(request):
        pass
    assert bodies.used == 0


def test_a_body_that_finds_no_room_is_refused_without_being_read():
    bodies = Budget(100_000, "bytes")
    assert bodies.try_reserve(50_000)
    with pytest.raises(QueueFull):
        asyncio.run(read_body(request_of(b"{}", length=70_000, bodies=bodies, timeout_ms=20)))
    assert bodies.used == 50_000


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b'{"text": [0, 1, 2]}', "text.0: Input should be a valid string"),
        (b'{"text": "a", "secret": 1, "other": 2}', "secret: Extra inputs are not permitted; other: Extra inputs"),
        (b'{"secret": 1, "number": -1}', "secret: Extra inputs are not permitted; text: Field required; number: Input"),
        (b'{"text": "a", "' + b"k" * 5000 + b'": 1}', "k" * 79 + "…: Extra inputs are not permitted"),
        (b'{"text": "a", "\\ud800": 1}', "?: Extra inputs are not permitted"),
        (b"[" * 100_000, "There was an error parsing the body"),
        (b"1" * 5000, "There was an error parsing the body"),
    ],
    ids=range(7),
)
def test_what_is_wrong_is_said_in_short(content, detail):
    assert detail_of(content).startswith(detail)


def test_ten_errors_are_named_at_most():
    content = json.dumps({"text": "a", **{f"key{number}": "value" for number in range(100_000)}}).encode()
    started = time.process_time()
    detail = detail_of(content)
    assert time.process_time() - started < 0.5
    assert detail.count("Extra inputs") == 10
    assert "value" not in detail


@pytest.mark.parametrize("item", ["0", "{}", "[]", "null", '"\\ud800"'])
def test_a_list_stops_at_its_first_wrong_item(item):
    content = f'{{"text": [{",".join([item] * 100_000)}]}}'.encode()
    started = time.process_time()
    detail = detail_of(content)
    assert time.process_time() - started < 0.5
    assert detail.startswith("text.0: ")
    assert len(detail) < 200


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(st.characters()), children, max_size=30),
    max_leaves=30,
)


@given(JUNK)
def test_no_detail_is_long_whatever_is_sent(value):
    content = json.dumps(value).encode()
    try:
        checked_body(Question, content, JSON)
    except (RequestValidationError, HTTPException):
        assert len(detail_of(content)) <= 1000
    assert gc.isenabled()
