"""What one API key has asked is in no cache that another one's requests find, and in no count that they see."""

import pytest
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import Settings

KEYS = ["first-key-of-the-tests", "second-key-of-the-tests"]
ADMINISTRATOR = "administrators-key-of-the-tests"
HITS, MISSES = "softserve_prefix_cache_hits_total", "softserve_prefix_cache_misses_total"


@pytest.fixture
def serving(tmp_path, wait_until):
    (tmp_path / "keys").write_text("\n".join(KEYS))
    (tmp_path / "admin").write_text(ADMINISTRATOR)
    started = []

    def start(*models, keys=True, **settings):
        files = {"api_keys": tmp_path / "keys", "admin_keys": tmp_path / "admin"} if keys else {}
        client = TestClient(create_app(Settings(threads=1, models=models, **files, **settings)))
        started.append(client.__enter__())
        wait_until(lambda: client.get("/readyz").status_code == 200)
        return client

    yield start
    for client in started:
        client.__exit__(None, None, None)


def next_word(context):
    return "/v1/next-word", {"context": context, "top_k": 3}


def infer(context):
    text = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [context]}
    return "/v2/models/next-word/infer", {"inputs": [text], "outputs": [{"name": "word"}]}


def score(text):
    return "/v1/score", {"text": " ".join([text] * 20)}


def completion(text):
    return "/v1/completions", {"prompt": " ".join([text] * 20), "echo": True, "logprobs": 0, "max_tokens": 0}


@pytest.mark.parametrize("asked", [next_word, infer, score, completion])
def test_a_key_finds_only_what_it_has_asked(serving, metric, asked):
    client = serving("next-word:4")

    def hit(key):
        before = metric(client, HITS)
        path, body = asked("we had a very good time")
        response = client.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
        assert response.status_code == 200, response.text
        return metric(client, HITS) == before + 1

    assert [hit(key) for key in (KEYS[0], KEYS[1], ADMINISTRATOR)] == [False] * 3
    assert [hit(key) for key in (KEYS[0], KEYS[1], ADMINISTRATOR)] == [True] * 3


@pytest.mark.parametrize("settings", [{"share_prefix_cache": True}, {"keys": False}])
def test_keys_share_the_cache_where_that_is_wanted(serving, metric, settings):
    client = serving("next-word:4", **settings)
    for key in KEYS:
        path, body = next_word("thank you very")
        assert client.post(path, json=body, headers={"X-API-Key": key}).status_code == 200
    assert (metric(client, MISSES), metric(client, HITS)) == (1, 1)


def test_the_usage_of_deepl_is_that_of_the_key(serving):
    client = serving("de-en")

    def headers(key):
        return {"Authorization": f"DeepL-Auth-Key {key}"}

    body = {"text": ["Guten Morgen"], "target_lang": "EN-US"}
    assert client.post("/v2/translate", json=body, headers=headers(KEYS[0])).status_code == 200
    used = [client.get("/v2/usage", headers=headers(key)).json()["character_count"] for key in KEYS]
    assert used == [12, 0]
