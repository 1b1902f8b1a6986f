"""Tests of the two loops against servers whose speed is known."""

import asyncio
import json
import time

import pytest

from benchmarks.load.client import Client
from benchmarks.load.generator import LoadTest
from benchmarks.load.model_list import ListedModel
from benchmarks.load.options import LoadOptions
from benchmarks.load.workload import Workload

SERVED = ListedModel(name="stub", version=1, task="any", operations=["classify"], reads="text", limits={})


def right(texts):
    return 200, json.dumps({"results": [0] * texts}).encode(), {}


def one_at_a_time(seconds):
    """Return a handler that responds to one request after the other, each after that many seconds."""
    lock = asyncio.Lock()

    async def answer(texts):
        async with lock:
            await asyncio.sleep(seconds)
        return right(texts)

    return answer


def always(status, content=b"", headers=None):
    async def answer(texts):
        return status, content, headers or {}

    return answer


async def measured(address, options, stop_after=None):
    before = []

    async def note():
        before.append(time.perf_counter())

    async with Client(address, None, options.most_connections()) as client:
        test = LoadTest(client, Workload(SERVED, options), options)
        if stop_after is not None:
            asyncio.get_running_loop().call_later(stop_after, test.stop)
        await test.run(note)
    assert len(before) == 1
    return test


def outcome_of(listening, app, options, stop_after=None):
    with listening(app) as address:
        return asyncio.run(measured(address, options, stop_after)).outcome


def test_a_closed_loop_never_has_more_requests_under_way_than_connections(listening, stub):
    under_way, most = 0, 0

    async def answer(texts):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1
        return right(texts)

    app = stub(answer)
    outcome = outcome_of(listening, app, LoadOptions(seconds=1, warm_up=0, connections=3, texts_per_request=2))
    assert most == 3
    assert outcome.requests == len(outcome.answered) == outcome.statuses[200] == len(app.bodies)
    assert 5 <= outcome.requests <= 60
    assert min(outcome.answered) >= 0.045
    assert outcome.good
    assert 0.99 <= outcome.seconds < 1.5
    assert outcome.in_time + outcome.after == outcome.requests
    assert all(len(body["text"]) == 2 for body in app.bodies)
    assert {headers[b"x-request-timeout-ms"] for headers in app.headers} == {b"30000"}


def test_the_latency_of_an_open_loop_counts_waiting(listening, stub):
    """20 requests/s to a server of 10/s with one connection: the last waits as long as all before take."""
    app = stub(one_at_a_time(0.1))
    outcome = outcome_of(listening, app, LoadOptions(seconds=2, warm_up=0, connections=1, rate=20))
    assert outcome.requests == len(outcome.answered) == len(app.bodies)
    assert 25 <= outcome.requests <= 60  # a Poisson process of 40, the same in each run
    # Every request takes 0.1 s, and the last was due within 2 s.
    assert max(outcome.answered) >= 0.1 * outcome.requests - 2 - 0.1
    assert max(outcome.answered) > 0.5
    assert outcome.in_time <= 20
    assert outcome.after == outcome.requests - outcome.in_time
    assert outcome.good


def test_a_closed_loop_omits_that_waiting(listening, stub):
    outcome = outcome_of(listening, stub(one_at_a_time(0.1)), LoadOptions(seconds=1, warm_up=0, connections=1))
    assert sorted(outcome.answered)[len(outcome.answered) // 2] < 0.3


def test_an_open_loop_sends_at_its_rate_whatever_becomes_of_it(listening, stub):
    async def answer(texts):
        await asyncio.sleep(1.0)
        return right(texts)

    outcome = outcome_of(listening, stub(answer), LoadOptions(seconds=2, warm_up=0, rate=100))
    assert 150 <= outcome.requests <= 250
    assert sorted(outcome.answered)[outcome.requests // 2] < 5  # all at once, none after another


def test_what_was_due_while_warming_up_does_not_count(listening, stub):
    app = stub(always(*right(1)))
    outcome = outcome_of(listening, app, LoadOptions(seconds=0.5, warm_up=0.5, connections=1))
    assert 0 < outcome.requests < len(app.bodies)
    assert outcome.in_time <= outcome.requests + 1


def test_refusals_are_counted_apart(listening, stub):
    app = stub(always(429, b"{}", {"Retry-After": "3"}))
    outcome = outcome_of(listening, app, LoadOptions(seconds=0.3, warm_up=0, connections=2))
    assert outcome.requests == len(outcome.refused) == outcome.statuses[429] == outcome.retry_after["3"] > 0
    assert outcome.answered == []
    assert outcome.in_time == 0
    assert outcome.good


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (422, b'{"detail": "text: too long"}', "text: too long"),
        (500, b"<h1>Oops</h1>\n\x1b[31m more", "<h1>Oops</h1> [31m more"),
        (302, b"", ""),
        (503, b"[1]", "[1]"),
    ],
)
def test_other_answers_are_errors_and_the_first_is_kept(listening, stub, status, content, said):
    outcome = outcome_of(listening, stub(always(status, content)), LoadOptions(seconds=0.2, warm_up=0, connections=1))
    assert outcome.requests == outcome.statuses[status] > 0
    assert outcome.details == {status: said}
    assert not outcome.good


def test_a_wrong_answer_is_no_answer(listening, stub):
    outcome = outcome_of(listening, stub(always(*right(2))), LoadOptions(seconds=0.2, warm_up=0, connections=1))
    assert outcome.failures == {"2 results for 1 texts": outcome.requests}
    assert outcome.answered == []
    assert outcome.in_time == 0
    assert not outcome.good


def test_the_client_gives_up_after_the_deadline_and_goes_on(listening, stub):
    async def answer(texts):
        await asyncio.sleep(20)
        return right(texts)

    outcome = outcome_of(listening, stub(answer), LoadOptions(seconds=1.5, warm_up=0, connections=2, timeout_ms=1))
    assert outcome.failures == {"no response in time": outcome.requests}
    assert 2 <= outcome.requests <= 4
    assert not outcome.good


def test_an_end_before_its_time_keeps_what_there_is(listening, stub):
    started = time.perf_counter()
    outcome = outcome_of(
        listening, stub(one_at_a_time(0.1)), LoadOptions(seconds=60, warm_up=0, connections=2), stop_after=0.55
    )
    assert time.perf_counter() - started < 30
    assert 1 <= outcome.requests <= 6
    assert 0.5 <= outcome.seconds < 10
    assert outcome.good


def test_an_end_while_warming_up_has_nothing_to_report(listening, stub):
    outcome = outcome_of(listening, stub(always(*right(1))), LoadOptions(seconds=60, warm_up=60), stop_after=0.2)
    assert (outcome.requests, outcome.seconds, outcome.good) == (0, 0.0, False)
