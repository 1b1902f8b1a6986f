"""Tests of the middleware around bare ASGI applications, message by message."""

import asyncio
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.accounts import account_of
from service.http.middleware import DRAINING, RequestMiddleware
from service.observability.metrics import Metrics


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


def call(app=echo, chunks=(b"",), headers=(), limit=100, metrics=None, state=None):
    """Sends one request through the middleware; `read` of the answer counts the chunks that were read."""
    sent, read = [], 0
    middleware = RequestMiddleware(app, metrics=metrics or Metrics(), max_body_bytes=limit)

    async def receive():
        nonlocal read
        read += 1
        return {"type": "http.request", "body": chunks[read - 1], "more_body": read < len(chunks)}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": list(headers), "state": dict(state or {})}
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
    return metrics.registry.get_sample_value("softserve_requests_total", {"deadline": "", **labels})


def test_a_request_is_counted_by_route_not_by_path():
    metrics = Metrics()

    async def app(scope, receive, send):
        scope["route"] = type("Route", (), {"path": "/v1/models/{name}"})
        account_of(scope).model = "next-word"
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


@pytest.mark.parametrize(("state", "advice"), [({}, None), ({DRAINING: True}, "close")])
def test_answers_advise_to_close_where_the_server_is_about_to_stop(state, advice):
    assert call(state=state).headers.get("connection") == advice


# ---- bodies that are late ----


def late_body(app, delays, timeout=0.2, metrics=None):
    """Sends a body in parts after some seconds each; returns the answer and the seconds it took."""
    sent, parts = [], list(delays)

    async def receive():
        await asyncio.sleep(parts.pop(0))
        return {"type": "http.request", "body": b"a", "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    async def run():
        middleware = RequestMiddleware(app, metrics=metrics or Metrics(), max_body_bytes=100, body_timeout=timeout)
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"transfer-encoding", b"chunked")]}
        started = asyncio.get_running_loop().time()
        await middleware(scope, receive, send)
        return asyncio.get_running_loop().time() - started

    seconds = asyncio.run(run())
    return Answer(sent, 0), seconds


@pytest.mark.parametrize("delays", [[0, 5], [0.05] * 50], ids=["silence", "trickle"])
@pytest.mark.parametrize("app", [echo, forgiving])
def test_a_body_that_does_not_arrive_in_time_is_refused(app, delays):
    metrics = Metrics()
    answer, seconds = late_body(app, delays, metrics=metrics)
    problem = json.loads(answer.body)
    assert (answer.status, problem["detail"]) == (408, "the body did not arrive within 0.2 seconds")
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["connection"] == "close"
    assert seconds < 0.5
    assert counted(metrics, model="", endpoint="unmatched", status="408") == 1


def test_a_body_that_arrives_in_time_passes_however_long_the_answer_takes():
    async def slow(scope, receive, send):
        while (await receive())["more_body"]:
            pass
        await asyncio.sleep(0.3)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    answer, _ = late_body(slow, [0.05, 0.05])
    assert (answer.status, "connection" in answer.headers) == (200, False)


def test_the_time_counts_from_when_the_application_begins_to_read():
    async def busy(scope, receive, send):
        await asyncio.sleep(0.3)
        await echo(scope, receive, send)

    answer, _ = late_body(busy, [0.05, 0.05])
    assert answer.status == 200


@pytest.mark.parametrize(
    ("headers", "advice"),
    [
        ([], None),
        ([(b"content-length", b"0")], None),
        ([(b"content-length", b"5")], "close"),
        ([(b"transfer-encoding", b"chunked")], "close"),
    ],
)
def test_an_answer_before_the_end_of_the_body_closes_the_connection(headers, advice):
    async def refuses(scope, receive, send):
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    answer = call(refuses, headers=headers)
    assert (answer.status, answer.headers.get("connection")) == (401, advice)
    assert "connection" not in call(echo, chunks=[b"a" * 5], headers=headers).headers


def test_nothing_more_is_sent_where_an_answer_has_begun_when_the_body_is_refused():
    async def streams(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": (await receive())["body"], "more_body": True})

    answer = call(streams, chunks=[b"a" * 60] * 3)
    assert (answer.status, answer.body) == (200, b"a" * 60)
