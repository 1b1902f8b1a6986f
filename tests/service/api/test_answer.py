"""Answers as JSON in chunks."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from service.http.answer import Answer, ChunkedResponse, encoded


class Result(BaseModel):
    text: str
    number: int | None = None


@pytest.fixture
def request_():
    with ThreadPoolExecutor(1) as encoder:
        resources = SimpleNamespace(encoder=encoder)
        yield SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(resources=resources)))


def served(name="some"):
    return SimpleNamespace(manifest=SimpleNamespace(name=name, version=3))


@pytest.mark.parametrize("items", [2, 5000])
@pytest.mark.parametrize("count", [0, 1, 2, 3000])
def test_the_chunks_are_the_json_of_the_results(request_, items, count):
    results = [Result(text="ü" * 50, number=None if place % 2 else place) for place in range(count)]
    for exclude_none in (False, True):
        chunks = asyncio.run(encoded(request_, Answer(served(), iter(results), items), exclude_none=exclude_none))
        expected = [result.model_dump(exclude_none=exclude_none) for result in results]
        assert json.loads(b"".join(chunks)) == {"model": "some", "version": 3, "results": expected}
        assert (len(chunks) > 1) == (count == 3000)


def test_a_chunk_is_sent_when_the_one_before_it_has_gone():
    sent, waiting = [], asyncio.Event()

    async def send(message):
        sent.append(message)
        if len(sent) == 3:
            await waiting.wait()

    async def run():
        response = ChunkedResponse([b"a" * 100_000, b"b" * 10], {"X-A": "1"})
        task = asyncio.create_task(response({"type": "http"}, None, send))
        await asyncio.sleep(0.01)
        assert len(sent) == 3
        waiting.set()
        await task

    asyncio.run(run())
    headers = dict(sent[0]["headers"])
    assert (headers[b"content-length"], headers[b"content-type"]) == (b"100010", b"application/json")
    assert b"".join(message["body"] for message in sent[1:]) == b"a" * 100_000 + b"b" * 10
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
