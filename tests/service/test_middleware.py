"""Tests of the middleware around bare ASGI applications, message by message."""

import asyncio
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.metrics import Metrics
from service.middleware import RequestMiddleware


async def echo(scope, receive, send):
    """Answers with the body it was sent."""
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def forgiving(scope, receive, send):
    """Takes whatever goes wrong while reading for the client's fault, as FastAPI does."""
    try:
        await echo(scope, receive, send)
    except Exception:
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b"unreadable"})


class Answer:
    def __init__(self, messages, read):
        start, *bodies = messages
        self.status = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        self.body = b"".join(message.get("body", b"") for message in bodies)
        self.read = read


def call(app=echo, chunks=(b"",), headers=(), limit=100, metrics=None):
    """Sends one request through the middleware; `read` of the answer counts the chunks that were read."""
    sent, read = [], 0
    middleware = RequestMiddleware(app, metrics=metrics or Metrics(), max_body_bytes=limit)

    async def receive():
        nonlocal read
        read += 1
        return {"type": "http.request", "body": chunks[read - 1], "more_body": read < len(chunks)}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": list(headers)}
    asyncio.run(middleware(scope, receive, send))
    return Answer(sent, read)


# ---- ids ----


@pytest.mark.parametrize("given_id", ["a", "0f-9:/{}", "x" * 128, "!~"])
def test_a_request_id_is_echoed(given_id):
    assert call(headers=[(b"x-request-id", given_id.encode())]).headers["x-request-id"] == given_id


def test_a_request_id_is_made():
    first, second = (call().headers["x-request-id"] for _ in range(2))
    assert first != second
    assert re.fullmatch("[0-9a-f]{32}", first)


@pytest.mark.parametrize(
    "given_id", [b"", b"a b", b"x" * 129, b"\xc3\xa9", b"a\r\nSet-Cookie: b", b"a\n", b"\0", b"\x7f"]
)
def test_a_rubbish_request_id_is_replaced(given_id):
    assert re.fullmatch("[0-9a-f]{32}", call(headers=[(b"x-request-id", given_id)]).headers["x-request-id"])


@given(given_id=st.binary(max_size=200))
def test_the_id_sent_back_is_always_plain(given_id):
    assert re.fullmatch(r"[\x21-\x7e]{1,128}", call(headers=[(b"x-request-id", given_id)]).headers["x-request-id"])


def test_the_application_sees_the_id():
    seen = {}

    async def app(scope, receive, send):
        seen.update(scope["state"])
        await echo(scope, receive, send)

    call(app, headers=[(b"x-request-id", b"mine")])
    assert seen["request_id"] == "mine"


# ---- bodies ----


@pytest.mark.parametrize("chunks", [[b"a" * 100], [b"a" * 50, b"a" * 50], [b""] * 9 + [b"a" * 100]])
def test_a_body_at_the_limit_passes(chunks):
    answer = call(chunks=chunks)
    assert (answer.status, answer.body) == (200, b"a" * 100)


def test_a_declared_body_above_the_limit_is_refused_unread():
    answer = call(chunks=[b"a" * 101], headers=[(b"content-length", b"101")])
    assert (answer.status, answer.read) == (413, 0)


@pytest.mark.parametrize("app", [echo, forgiving])
def test_an_undeclared_body_is_refused_once_it_is_too_large(app):
    answer = call(app, chunks=[b"a" * 60] * 50)
    assert (answer.status, answer.read) == (413, 2)
    problem = json.loads(answer.body)
    assert problem["detail"] == "the body is larger than the 100 bytes this service accepts"
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"


def test_a_body_larger_than_declared_is_refused():
    assert call(chunks=[b"a" * 101], headers=[(b"content-length", b"5")]).status == 413


@pytest.mark.parametrize("length", [b"", b"-1", b"abc", b"1.5", "²".encode("latin-1"), b"1e9"])
def test_a_rubbish_content_length_does_not_lift_the_limit(length):
    assert call(chunks=[b"a" * 101], headers=[(b"content-length", length)]).status == 413
    assert call(chunks=[b"a" * 100], headers=[(b"content-length", length)]).status == 200


def test_a_content_length_of_any_number_of_digits_is_too_large():
    assert call(chunks=[b""], headers=[(b"content-length", b"9" * 5000)]).status == 413


# ---- counting ----


def counted(metrics, **labels):
    return metrics.registry.get_sample_value("softserve_requests_total", labels)


def test_a_request_is_counted_by_route_not_by_path():
    metrics = Metrics()

    async def app(scope, receive, send):
        scope["route"] = type("Route", (), {"path": "/v1/models/{name}"})
        scope["state"]["model"] = "next-word"
        await echo(scope, receive, send)

    call(app, metrics=metrics)
    assert counted(metrics, model="next-word", endpoint="/v1/models/{name}", status="200") == 1
    count = "softserve_request_duration_seconds_count"
    assert metrics.registry.get_sample_value(count, {"model": "next-word", "endpoint": "/v1/models/{name}"}) == 1


def test_what_has_no_route_is_counted_together():
    metrics = Metrics()
    call(metrics=metrics)
    call(metrics=metrics, chunks=[b"a" * 101])
    assert counted(metrics, model="", endpoint="unmatched", status="200") == 1
    assert counted(metrics, model="", endpoint="unmatched", status="413") == 1


def test_a_crash_is_counted_and_passed_on():
    metrics = Metrics()

    async def app(scope, receive, send):
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        call(app, metrics=metrics)
    assert counted(metrics, model="", endpoint="unmatched", status="500") == 1


def test_what_is_no_request_passes_untouched():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope)

    middleware = RequestMiddleware(app, metrics=Metrics(), max_body_bytes=1)
    asyncio.run(middleware({"type": "lifespan"}, None, None))
    assert seen == [{"type": "lifespan"}]


# ---- clients that leave ----


class Visitor:
    """A client whose body comes at once, and who leaves when told to."""

    def __init__(self, app, metrics=None):
        self.gone, self.sent, self.read = asyncio.Event(), [], 0
        self.metrics = metrics or Metrics()
        middleware = RequestMiddleware(app, metrics=self.metrics, max_body_bytes=100)
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        self.task = asyncio.create_task(middleware(scope, self.receive, self.send))

    async def receive(self):
        self.read += 1
        if self.read == 1:
            return {"type": "http.request", "body": b"a", "more_body": True}
        if self.read == 2:
            return {"type": "http.request", "body": b"b"}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message["type"])


def visited(scenario):
    async def run():
        async with asyncio.timeout(10):
            await scenario()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}  # no watcher is left

    asyncio.run(run())


def test_a_client_that_leaves_takes_its_request_along():
    async def scenario():
        reached, cancelled = asyncio.Event(), []

        async def slow(scope, receive, send):
            while (await receive()).get("more_body"):
                pass
            reached.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        visitor = Visitor(slow)
        await reached.wait()
        visitor.gone.set()
        await visitor.task
        assert cancelled == [True]
        assert visitor.sent == []
        assert counted(visitor.metrics, model="", endpoint="unmatched", status="499") == 1

    visited(scenario)


def test_a_client_that_leaves_after_its_answer_harms_nothing():
    async def scenario():
        async def answers_and_goes_on(scope, receive, send):
            await echo(scope, receive, send)
            visitor.gone.set()
            await asyncio.sleep(0.01)

        visitor = Visitor(answers_and_goes_on)
        await visitor.task
        assert visitor.sent == ["http.response.start", "http.response.body"]
        assert counted(visitor.metrics, model="", endpoint="unmatched", status="200") == 1

    visited(scenario)


def test_an_application_may_wait_for_the_client_to_leave():
    async def scenario():
        async def streams(scope, receive, send):
            await echo(scope, receive, send)
            seen.append((await receive())["type"])

        seen = []
        visitor = Visitor(streams)
        visitor.gone.set()
        await visitor.task
        assert seen == ["http.disconnect"]

    visited(scenario)


def test_a_request_that_is_cancelled_by_the_server_stays_cancelled():
    async def scenario():
        async def slow(scope, receive, send):
            await asyncio.sleep(60)

        visitor = Visitor(slow)
        await asyncio.sleep(0.01)
        visitor.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await visitor.task

    visited(scenario)
