"""Tests of the comparison of protocols."""

import json

import pytest
from fastapi.testclient import TestClient

from benchmarks.protocols import _KINDS
from service.server.app import create_app
from service.settings import Settings


@pytest.fixture(scope="module")
def client():
    with TestClient(create_app(Settings(models=("intents",), threads=1), load_first=True)) as client:
        yield client


@pytest.mark.parametrize("kind", _KINDS, ids=[kind.name for kind in _KINDS])
def test_each_protocol_answers(client, kind):
    headers = {"Content-Type": "application/json", **kind.headers}
    found = client.post(kind.path, content=kind.body("play some musíc"), headers=headers)
    assert found.status_code == 200
    assert b"play_music" in found.content
    assert found.headers["content-type"] == ("application/octet-stream" if kind.headers else "application/json")
    if not kind.headers:
        assert json.loads(found.content)
