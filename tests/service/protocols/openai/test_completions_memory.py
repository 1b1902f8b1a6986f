"""Completions within the memory of the decoding caches."""

import asyncio
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from service.engine.budget import Budget
from service.server.app import create_app
from service.settings import Settings
from tests.service.protocols.openai.test_completions import complete, refused, streamed
from tests.support.waiting import wait_until

SAMPLED = {"prompt": "I would like a cup of", "n": 5, "best_of": 6, "max_tokens": 18, "seed": 1, "temperature": 1.0}
MODEL = "next-word:5"


@pytest.fixture(scope="module")
def small() -> Iterator[TestClient]:
    """A service whose decoding caches hold some 60 tokens, and which has no prefix cache."""
    settings = Settings(threads=1, models=(MODEL,), decoding_cache_mb=2, prefix_cache_mb=0)
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture(scope="module")
def large() -> Iterator[TestClient]:
    with TestClient(create_app(Settings(threads=1, models=(MODEL,)))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def cache_of(client: TestClient) -> Budget:
    return client.app.state.engine.resources.decoding_cache


def test_completions_that_have_no_room_together_are_written_in_groups(small, large):
    one, other = (complete(client, **SAMPLED)["choices"] for client in (small, large))
    assert len(one) == 5
    assert [each["text"] for each in one] == [each["text"] for each in other]
    events = streamed(small, **{key: value for key, value in SAMPLED.items() if key != "best_of"})
    texts = [""] * 5
    for event in events:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
    whole = complete(large, **{**SAMPLED, "best_of": 5})["choices"]
    assert texts == [each["text"] for each in whole]
    assert cache_of(small).used == cache_of(large).used == 0


def test_a_completion_that_exceeds_the_decoding_caches_alone_is_refused(small):
    message = refused(small, 400, model=MODEL, prompt="I", max_tokens=100)
    assert "bytes of decoding cache for completions (half of --decoding-cache-mb); the limit is 1048576" in message
    assert cache_of(small).used == 0


def test_a_completion_waits_for_others_that_hold_the_decoding_caches(small):
    cache = cache_of(small)

    small.portal.call(cache.reserve, cache.total)
    refused(small, 504, {"X-Request-Timeout-Ms": "200"}, model=MODEL, prompt="I", max_tokens=2)
    found: list[str] = []

    async def later() -> None:
        await asyncio.sleep(0.2)
        found.append("released")
        cache.release(cache.total)

    small.portal.start_task_soon(later)
    assert len(complete(small, model=MODEL, prompt="I", max_tokens=2)["choices"]) == 1
    assert found == ["released"]
    assert cache.used == 0
