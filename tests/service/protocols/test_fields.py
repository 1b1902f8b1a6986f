"""Tests of reading fields and of answers, and of hostile forms."""

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from service.protocols.fields import Fields, json_response, read_fields
from service.server.app import create_app
from service.settings import Settings

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Question(Fields):
    q: list[str] | str
    count: int = 1


@pytest.fixture(scope="module")
def client():
    """An application with one more route, which echoes its fields as often as it is asked to."""
    app: FastAPI = create_app(Settings(models=("next-word:4",)))

    async def echo(request):
        fields = await read_fields(request, Question, lists=frozenset(("q",)))
        return await json_response(request, lambda: [fields.q] * fields.count, items=fields.count)

    app.add_route("/echo", echo, methods=["POST"])
    with TestClient(app) as client:
        yield client


def test_json_and_forms_say_the_same(client):
    assert client.post("/echo", json={"q": "ä", "other": 5}).json() == ["ä"]
    assert client.post("/echo", data={"q": "ä", "count": "2"}).json() == ["ä", "ä"]
    assert client.post("/echo", content="q=a&q=b&other=5", headers=FORM).json() == [["a", "b"]]
    assert client.post("/echo", content="q=a&count=1&count=2", headers=FORM).status_code == 400


def test_large_answers_are_made_on_another_thread(client):
    assert client.post("/echo", json={"q": "a", "count": 5000}).json() == ["a"] * 5000


@given(content=st.binary(max_size=200))
def test_no_form_is_a_bug_of_the_service(client, content):
    assert client.post("/echo", content=content, headers=FORM).status_code in (200, 400, 422)


def test_a_form_of_too_many_fields_is_refused(client):
    assert client.post("/echo", content="a=b&" * 20_000, headers=FORM).status_code == 400


def test_compressed_bodies_are_refused(client):
    answer = client.post("/echo", json={"q": "a"}, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415
