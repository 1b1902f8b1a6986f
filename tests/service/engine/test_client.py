"""The engine's door: models are found and held, inputs prepared, results reserved, and all of it released."""

import asyncio
import contextlib
import math
import threading
import time
from types import SimpleNamespace

import pytest

from models import QueryError
from service.engine.batcher import DeadlineExceeded
from service.engine.caller import Account, Caller
from service.engine.client import Engine
from service.engine.queue import QueueFull
from service.engine.resources import Resources
from service.observability.metrics import Metrics
from service.settings import Settings


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
    def preparing(operation, items, deadline, tokens, flow):
        if items > 3:
            raise QueueFull(never=True)
        yield

    model = SimpleNamespace(estimated_tokens=lambda operation, inputs: 1)
    return SimpleNamespace(
        observer=Recorder(),
        batcher=SimpleNamespace(preparing=preparing, computations=None),
        model=model,
        manifest=SimpleNamespace(name="counter"),
        hold=lambda: None,
        release=lambda: None,
    )


@pytest.fixture
def account():
    return Account()


@pytest.fixture
def begun(served, account):
    """Begins a request for the model, with a deadline of its own."""
    settings = Settings()
    resources = Resources(settings)
    engine = Engine(settings, Metrics(), SimpleNamespace(find=lambda *_: served), resources)

    def begin(deadline=math.inf):
        found = engine.begin(Caller(account), None, "count")
        found.deadline = deadline
        return found

    yield begin
    resources.close()


def test_the_deadline_is_the_callers_or_the_settings():
    for given, seconds in ((None, 7.0), (250, 0.25)):
        engine, before = Engine(Settings(request_timeout_ms=7000), None, None, None), time.monotonic()
        deadline = engine.deadline(Caller(Account(), given))
        assert before + seconds <= deadline <= time.monotonic() + seconds


@pytest.mark.parametrize(
    ("texts", "inline"), [(["a", "b"], True), (["a" * 20_000], True), (["a" * 20_000, "b"], False)]
)
def test_long_texts_are_tokenized_on_another_thread(begun, account, served, texts, inline):
    threads = []

    def query(text):
        threads.append(threading.get_ident())
        return len(text)

    queries = asyncio.run(begun().prepare("count", query, texts))
    assert queries == [len(text) for text in texts]
    assert (set(threads) == {threading.get_ident()}) == inline
    assert served.observer.seconds == [account.preparation_seconds]


@pytest.mark.parametrize("long", [False, True])
def test_refused_texts_are_counted(begun, served, long):
    def query(text):
        raise QueryError("no")

    with pytest.raises(QueryError, match="no"):
        asyncio.run(begun().prepare("count", query, ["a" * 30_000 if long else "a", "b"]))
    assert served.observer.rejections == [("invalid", 2)]
    assert served.observer.seconds == []


def test_more_than_could_ever_wait_is_refused_before_it_is_read(begun, served):
    with pytest.raises(QueueFull) as caught:
        asyncio.run(begun().prepare("count", pytest.fail, ["a"] * 4))
    assert caught.value.never


def test_the_deadline_holds_while_texts_are_read(begun, served):
    read, deadline = [], time.monotonic() + 0.5

    def query(text):
        read.append(text)
        time.sleep(max(0, deadline - time.monotonic()) + 0.01)

    with pytest.raises(DeadlineExceeded):
        asyncio.run(begun(deadline).prepare("count", query, ["a", "b", "c"], images=True))
    assert read == ["a"]
    assert served.observer.rejections == [("expired", 3)]


def test_heavy_inputs_are_read_elsewhere_some_requests_at_a_time(begun, served):
    threads, running, most = set(), [], []

    def query(text):
        threads.add(threading.get_ident())
        running.append(text)
        most.append(len(running))
        time.sleep(0.02)
        running.pop()

    async def all_at_once():
        await asyncio.gather(*(begun().prepare("count", query, ["a"], images=True) for _ in range(6)))

    asyncio.run(all_at_once())
    assert threading.get_ident() not in threads
    assert max(most) <= 2
