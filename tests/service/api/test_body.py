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

from service.engine.budget import BodyBudget, BodyReservation
from service.engine.client import Engine
from service.http.accounts import account_of
from service.http.auth import Identity, KeyRing
from service.http.body import checked_body, read_body
from service.http.errors import ClientDisconnected, Failing, failure_of
from service.http.requests import Body, Texts
from service.observability.metrics import Metrics
from service.settings import Settings

JSON = "application/json"
DISCONNECT = {"type": "http.disconnect"}
MOST = Settings().max_body_values


class Question(Body):
    text: Texts
    number: Annotated[int, Field(ge=0)] = 0


def failure(content):
    """Return the failure with which a refused body is answered."""
    with pytest.raises((RequestValidationError, HTTPException)) as caught:
        checked_body(Question, content, JSON, MOST)
    scope = {"type": "http", "headers": [(b"content-type", b"application/json")], "state": {"request_id": "1"}}
    return failure_of(Failing.of(scope), caught.value)


def detail_of(content):
    return failure(content).detail


def request_of(*parts, bodies=None, timeout_ms=1000, headers=(), state=None, metrics=None):
    """A request whose body arrives in parts, and then the client disconnects unless the last part is the end."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts[:-1]]
    messages.append({"type": "http.request", "body": parts[-1]} if parts[-1] is not None else DISCONNECT)

    async def receive():
        await asyncio.sleep(0)
        return messages.pop(0)

    engine = Engine(
        Settings(request_timeout_ms=timeout_ms),
        metrics or Metrics(),
        SimpleNamespace(heap_trimmer=SimpleNamespace(request=lambda: None)),
        SimpleNamespace(bodies=bodies or BodyBudget(16 << 20, 1 << 20)),
    )
    app = SimpleNamespace(engine=engine, settings=engine.settings)
    scope = {"type": "http", "headers": list(headers), "state": state or {}, "app": SimpleNamespace(state=app)}
    return Request(scope, receive)


def test_a_body_is_read_and_checked():
    assert asyncio.run(read_body(request_of(b'{"text":', b'"a"}'))) == b'{"text":"a"}'
    assert checked_body(Question, b'{"text":"a","number":3}', JSON, MOST) == Question(text=["a"], number=3)


@pytest.mark.parametrize(
    ("length", "reserved"), [(65_536, 0), (65_537, 2 << 16), (300_000, 5 << 16), (1 << 20, 1 << 20)]
)
def test_a_body_reserves_the_bytes_that_have_arrived_until_the_request_is_over(length, reserved):
    bodies = BodyBudget(16 << 20, 1 << 20)
    request = request_of(b"a" * (length // 2), b"a" * (length - length // 2), bodies=bodies)
    assert len(asyncio.run(read_body(request))) == length
    assert bodies.used == reserved
    account_of(request.scope).close()
    assert bodies.used == 0


def test_a_body_that_has_not_arrived_reserves_nothing_whatever_its_length_is_said_to_be():
    async def run():
        bodies = BodyBudget(16 << 20, 1 << 20)
        said = [(b"content-length", b"1048576")]
        slow = [request_of(b"a", b"", bodies=bodies, headers=said) for _ in range(50)]
        for each in slow:
            each._receive = asyncio.Event().wait
        waiting = [asyncio.create_task(read_body(each)) for each in slow]
        await asyncio.sleep(0)
        assert len(await read_body(request_of(b"a" * 70_000, bodies=bodies, timeout_ms=50))) == 70_000
        for each in waiting:
            each.cancel()

    asyncio.run(run())


def test_bodies_that_arrive_at_the_same_time_are_all_received():
    async def run():
        bodies = BodyBudget(16 << 20, 1 << 20)

        async def answered():
            request = request_of(*[b"a" * (1 << 16)] * 16, bodies=bodies, timeout_ms=20_000)
            length = len(await read_body(request))
            account_of(request.scope).close()
            return length

        assert await asyncio.gather(*(answered() for _ in range(100))) == [1 << 20] * 100
        assert bodies.used == 0

    asyncio.run(run())


def test_a_body_that_finds_no_room_until_its_deadline_is_refused_and_holds_nothing():
    async def run():
        bodies, metrics = BodyBudget(300_000, 100_000), Metrics()
        completing, other = BodyReservation(bodies), BodyReservation(bodies)
        await other.extend(120_000)
        await completing.extend(100_000)
        deadline = [(b"x-request-timeout-ms", b"20")]
        parts = [b"a" * 70_000] * 2
        with pytest.raises(HTTPException) as caught:
            await read_body(request_of(*parts, bodies=bodies, timeout_ms=60_000, headers=deadline, metrics=metrics))
        assert (caught.value.status_code, caught.value.headers) == (429, {"Retry-After": "1"})
        assert bodies.used == 120_000
        rejected = {"model": "", "version": "", "reason": "overloaded"}
        assert metrics.registry.get_sample_value("softserve_rejected_total", rejected) == 1

    asyncio.run(asyncio.wait_for(run(), 10))


def test_a_large_body_needs_its_key_in_a_header():
    request = request_of(b"a" * 65_536, b"a", b"a", state={"identity": Identity(keys_in_body=KeyRing(["key"]))})
    with pytest.raises(HTTPException, match="65536 bytes needs its key in a header") as caught:
        asyncio.run(read_body(request))
    assert caught.value.status_code == 413


def test_a_client_that_disconnects_during_its_body_is_no_invalid_request():
    with pytest.raises(ClientDisconnected):
        asyncio.run(read_body(request_of(b"a", None)))


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b'{"text": [0, 1, 2]}', "text.0: must be a text"),
        (b'{"text": "a", "secret": 1, "x": 2}', "secret: unknown field (known: text, number); x: unknown field"),
        (
            b'{"secret": 1, "number": -1}',
            "secret: unknown field (known: text, number); text: is missing; number: must be",
        ),
        (b'{"text": "a", "' + b"k" * 5000 + b'": 1}', "k" * 79 + "…: unknown field"),
        (b'{"text": "a", "\\ud800": 1}', "?: unknown field"),
        (b'{"text": }', "the body is not JSON: Expecting value at character 9"),
        (b'{"text": "\xff"}', "the body is not UTF-8 from byte 10 on"),
        (b"[" * 60_000, "the body is nested too deeply"),
        (b"1" * 5000, "the body holds a number of too many digits"),
    ],
    ids=range(9),
)
def test_what_is_wrong_is_said_in_short(content, detail):
    assert detail_of(content).startswith(detail)


@pytest.mark.parametrize(
    ("item", "count"),
    [("0", MOST), ("null", MOST), ("[]", MOST // 2), ("{}", MOST // 5), ('{"":0}', MOST // 7)],
    ids=["numbers", "nulls", "lists", "objects", "objects with a field"],
)
@pytest.mark.parametrize("within", [True, False])
def test_a_large_body_has_a_bounded_number_of_values(item, count, within):
    content = f'{{"text":[{",".join([item] * (count - 10 if within else count + 10))}]}}'.encode()
    assert len(content) > 65_536
    started = time.thread_time()
    found = failure(content)
    assert time.thread_time() - started < 0.5
    assert found.status == (422 if within else 413)
    assert within or f"more than the {MOST} texts, numbers" in found.detail


@pytest.mark.parametrize(
    "text", ["," * 300_000, '\\"' * 300_000, "\\\\" * 300_000, ":[{" * 100_000, '\\\\\\",' * 100_000]
)
def test_what_is_within_a_text_is_no_value(text):
    content = b'{"text":"' + text.encode() + b'"}'
    assert checked_body(Question, content, JSON, MOST).text == [json.loads(content)["text"]]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b'{"text":"a","text":"a"}', "text"),
        (b'{"number":{"\\u0061":1,"a":2}}', "a"),
        (b'{"\\ud800":1,"\\ud800":2}', "?"),
    ],
    ids=range(3),
)
def test_a_field_that_comes_twice_is_refused(content, name):
    assert detail_of(content) == f"the body has the field {name} twice in one object"


def test_a_byte_order_mark_is_ignored():
    assert checked_body(Question, b'\xef\xbb\xbf{"text":"a"}', JSON, MOST).text == ["a"]


def test_ten_errors_are_named_at_most():
    content = json.dumps({"text": "a", **{f"key{number}": "value" for number in range(40_000)}}).encode()
    started = time.thread_time()
    detail = detail_of(content)
    assert time.thread_time() - started < 0.5
    assert detail.count("unknown field") == 10
    assert detail.count("(known: text, number)") == 1
    assert "value" not in detail


@pytest.mark.parametrize("item", ["0", "{}", "[]", "null", '"\\ud800"'])
def test_a_list_stops_at_its_first_wrong_item(item):
    content = f'{{"text": [{",".join([item] * 20_000)}]}}'.encode()
    detail = detail_of(content)
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
        checked_body(Question, content, JSON, MOST)
    except (RequestValidationError, HTTPException):
        assert len(detail_of(content)) <= 1000
    assert gc.isenabled()
