"""Experiments over HTTP, by two versions of the bundled language model."""

import pytest
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import Settings

KEY = {"Authorization": "Bearer admin-key-of-some-length"}
PATH = "/v1/admin/experiments"


@pytest.fixture
def client(tmp_path, two_versions, wait_until):
    (tmp_path / "admins").write_text("admin-key-of-some-length")
    settings = Settings(
        model_dirs=(two_versions,),
        models=("next-word",),
        admin_keys=tmp_path / "admins",
        threads=1,
        parallel_batches=1,
        watch_seconds=0,
    )
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def version(client, **headers):
    answer = client.post("/v1/next-word", json={"context": "we had a very", "model": "next-word"}, headers=headers)
    assert answer.status_code == 200
    return answer.json()["version"]


def test_a_shadow_is_started_shown_and_promoted(client, wait_until):
    body = {"name": "older", "primary": "next-word", "candidate": "next-word:8", "keep_disagreements": 5}
    assert client.post(PATH, json=body).status_code == 401
    started = client.post(PATH, json=body, headers=KEY)
    assert started.status_code == 200
    assert (started.json()["primary"], started.json()["candidate"]) == ("next-word:9", "next-word:8")
    assert version(client) == 9
    show = f"{PATH}/older"
    wait_until(lambda: client.get(show, headers=KEY).json()["compared"] == 1)
    found = client.get(show, headers=KEY).json()
    assert found["inputs"] == {"agree": 1, "disagree": 0, "compared": 0, "failed": 0, "shed": 0}
    assert found["agreement"]["value"] == 1.0
    assert 0.2 < found["agreement"]["low"] < 0.21  # of a single text: 1 / (1 + 1.96²)
    assert found["measures"]["overlap"]["value"] == 1.0
    assert found["disagreements"] == []
    assert [each["name"] for each in client.get(PATH, headers=KEY).json()["experiments"]] == ["older"]
    assert client.post(PATH, json=body, headers=KEY).status_code == 409
    assert client.post(f"{show}/promote", headers=KEY).json()["compared"] == 1
    assert version(client) == 8
    assert client.get(show, headers=KEY).status_code == 404


def test_a_canary_answers_and_is_dropped(client):
    body = {"name": "older", "primary": "next-word", "candidate": "next-word:8", "mode": "canary"}
    assert client.post(PATH, json=body, headers=KEY).status_code == 200
    assert version(client) == 8
    assert version(client, **{"X-Canary": "primary"}) == 9
    assert 'softserve_experiment_requests_total{experiment="older",side="candidate"} 1.0' in client.get("/metrics").text
    dropped = client.delete(f"{PATH}/older", headers=KEY)
    assert dropped.json()["requests"] == {"primary": 1, "candidate": 1}
    assert version(client) == 9
    assert [each["version"] for each in client.get("/v1/models").json()["models"]] == [9]
    for call in (client.delete, client.get):
        assert "there is no experiment" in call(f"{PATH}/older", headers=KEY).json()["detail"]


def test_invalid_experiments_are_refused(client):
    body = {"name": "older", "primary": "next-word", "candidate": "next-word:8"}

    def status(**changes):
        return client.post(PATH, json=body | changes, headers=KEY).status_code

    assert status(share=0) == status(share=1.5) == status(name="No Name") == status(mode="other") == 422
    assert status(keep_disagreements=-1) == status(unknown=1) == 422
    assert status(primary="nothing") == status(candidate="next-word:7") == 404
    assert status(candidate="next-word:9") == 409
