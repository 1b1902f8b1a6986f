"""Tests of the list of models and the choice of one."""

import asyncio
import json

import pytest

from benchmarks.load.client import Client
from benchmarks.load.model_list import ListedModel, choose, list_models
from benchmarks.load.options import UsageError


def listed_model(name, version=1, reads="text"):
    return ListedModel(name=name, version=version, task="any", operations=["classify"], reads=reads, limits={})


MODELS = [listed_model("photos", reads="image"), listed_model("a", 9), listed_model("a", 10), listed_model("b")]


@pytest.mark.parametrize(
    ("name", "chosen"),
    [(None, ("a", 10)), ("a", ("a", 10)), ("a:9", ("a", 9)), ("b", ("b", 1)), ("photos", ("photos", 1))],
)
def test_the_choice(name, chosen):
    found = choose(MODELS, name)
    assert (found.name, found.version) == chosen


def test_images_where_there_is_nothing_else():
    assert choose(MODELS[:1], None).name == "photos"


def test_an_unknown_model_names_the_known():
    with pytest.raises(UsageError, match=r"^unknown model 'a:1'; the server has photos:1, a:9, a:10, b:1$"):
        choose(MODELS, "a:1")


def test_no_model_at_all():
    with pytest.raises(UsageError, match="may still be loading"):
        choose([], None)


def listed(listening, status, content):
    async def app(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": content})

    async def call(address):
        async with Client(address, None, 1) as client:
            return await list_models(client, address)

    with listening(app) as address:
        return asyncio.run(call(address))


def test_what_a_later_server_says_besides_is_ignored(listening):
    entry = {**MODELS[1].model_dump(), "novelty": 1, "limits": {"max_tokens": 4}}
    assert listed(listening, 200, json.dumps({"models": [entry], "more": 2}).encode()) == [MODELS[1]]


@pytest.mark.parametrize(
    ("status", "content", "text"),
    [
        (200, b"<html>", "lists no models of Softserve"),
        (200, b'{"object": "list", "data": []}', "lists no models of Softserve"),
        (
            200,
            b'{"models": [{"name": "a\\u001b[31m", "version": 1, "task": "x", "operations": [], "reads": "text", '
            b'"limits": {}}]}',
            "lists no models",
        ),
        (401, b"", "requires an API key"),
        (404, b"", "answers with status 404: is that the address of a Softserve"),
        (503, b"", "answers with status 503"),
    ],
)
def test_what_is_no_list_of_models(listening, status, content, text):
    with pytest.raises(UsageError, match=text):
        listed(listening, status, content)
