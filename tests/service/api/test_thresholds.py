"""`/v1/admin/models/{name}/thresholds`: the rate of inputs that are refused as out of scope."""

import pytest
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import Settings

ADMIN = "admin-key-of-some-length"
PATH = "/v1/admin/models/intents/thresholds"
UNCLEAR = "tell me something about the tallest mountain"


@pytest.fixture(scope="module")
def client(tmp_path_factory, wait_until):
    admins = tmp_path_factory.mktemp("keys") / "admins"
    admins.write_text(ADMIN)
    settings = Settings(
        threads=1,
        models=("intents", "next-word"),
        admin_keys=admins,
        result_cache_mb=1,
        parallel_batches=1,
    )
    with TestClient(create_app(settings), headers={"Authorization": f"Bearer {ADMIN}"}) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def outside(client):
    (result,) = client.post("/v1/classify", json={"text": UNCLEAR}).json()["results"]
    return result["out_of_scope"], result["labels"][0]["probability"]


def test_a_rate_changes_the_answers_at_once(client):
    before = client.get(PATH).json()
    assert before["trade_off"]
    changed = client.post(PATH, json={"reject_rate": 0.02}).json()
    assert changed["rejected"] == pytest.approx(0.02, abs=0.002)
    assert changed["threshold"] < before["threshold"]
    assert client.get(PATH).json() == changed
    (listed,) = client.get("/v1/models/intents").json()["models"]
    assert listed["out_of_scope"] == {name: changed[name] for name in listed["out_of_scope"]}
    assert changed["score"] == "logit"
    lenient = client.post(PATH, json={"threshold": 0.0}).json()
    assert lenient["rejected"] == 0.0
    assert outside(client)[0] is False
    strict = client.post(PATH, json={"threshold": 20.0}).json()
    assert strict["detected"] >= lenient["detected"]
    assert outside(client)[0] is True, "no result of before is cached"
    client.post(PATH, json={"pass_rate": 0.2})
    assert client.get(PATH).json()["detected"] == pytest.approx(0.8, abs=0.01)
    client.post("/v1/admin/models/intents/load")
    assert client.get(PATH).json() == before, "a model that is loaded again has the rule of its bundle"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "give one of reject_rate, pass_rate and threshold"),
        ({"reject_rate": 0.1, "threshold": 0.5}, "give one of"),
        ({"reject_rate": None}, "give one of"),
        ({"reject_rate": 0.99}, "reject_rate must be from"),
        ({"pass_rate": -0.1}, "pass_rate must be from"),
    ],
)
def test_what_is_refused(client, body, message):
    before = client.get(PATH).json()
    answer = client.post(PATH, json=body)
    assert answer.status_code == 422
    assert message in answer.text
    assert client.get(PATH).json() == before


def test_other_models_have_no_rule(client):
    answer = client.post("/v1/admin/models/next-word/thresholds", json={"reject_rate": 0.1})
    assert answer.status_code == 422
    assert "does not tell inputs that are out of scope" in answer.text
    assert client.post("/v1/admin/models/none/thresholds", json={"reject_rate": 0.1}).status_code == 404
