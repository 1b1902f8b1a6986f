"""Deadlines that are shorter than an unloaded answer takes are told apart in the metrics, by whatever API they come."""

import threading

import pytest
from fastapi.testclient import TestClient

from service.engine.batcher import DeadlineExceeded
from service.server.app import create_app
from service.settings import Settings

REQUESTS, REJECTED = "softserve_requests_total", "softserve_rejected_total"
CONTEXT = {"context": "we had a very", "top_k": 1}


def post(client, milliseconds, path="/v1/next-word", body=None):
    headers = {} if milliseconds is None else {"X-Request-Timeout-Ms": str(milliseconds)}
    return client.post(path, json=body or CONTEXT, headers=headers).status_code


@pytest.mark.parametrize(("milliseconds", "deadline", "reason"), [(1, "short", "short_deadline"), (500, "", "expired")])
def test_a_deadline_that_passes(serve, gate, metric, milliseconds, deadline, reason):
    client = serve()
    gate.opened.clear()
    assert post(client, milliseconds) == 504
    assert metric(client, REQUESTS, status="504", deadline=deadline) == metric(client, REQUESTS, status="504") == 1
    assert metric(client, REJECTED, reason=reason) == metric(client, REJECTED) == 1


@pytest.mark.parametrize(
    ("milliseconds", "deadline", "reason"), [(1, "short", "short_deadline"), (500, "", "overloaded")]
)
def test_a_refusal_because_of_the_deadline(serve, gate, metric, monkeypatch, milliseconds, deadline, reason):
    """Another request is computed, and all are expected to take a second."""
    client = serve()
    gate.opened.clear()
    holding = threading.Thread(target=post, args=(client, None))
    holding.start()
    assert gate.entered.wait(10)
    (served,) = client.app.state.served_models.served.values()
    monkeypatch.setattr(served.batcher._drain, "seconds", lambda cost: 1.0)
    assert post(client, milliseconds) == 429
    assert metric(client, REQUESTS, status="429", deadline=deadline) == metric(client, REQUESTS, status="429") == 1
    assert metric(client, REJECTED, reason=reason) == metric(client, REJECTED) == 1
    gate.opened.set()
    holding.join(10)


def test_a_model_that_has_become_slow_is_no_fault_of_the_deadline(serve, gate, metric):
    """The terms that are fitted to served batches rise with the slowness; those of the warm-up do not."""
    client = serve()
    (served,) = client.app.state.served_models.served.values()
    for cost in served.batcher._replicas[0].costs.values():
        cost.terms = cost.terms._replace(fixed=10.0)
    gate.opened.clear()
    assert post(client, 500) == 504
    assert metric(client, REQUESTS, status="504", deadline="") == 1


def test_a_completion_of_many_tokens_needs_the_time_of_its_steps(serve, metric, monkeypatch):
    """Each of 1000 steps takes 2 ms or so; drawing takes longer than the deadline in any case."""
    client = serve()
    (served,) = client.app.state.served_models.served.values()
    unloaded = served.batcher.unloaded_seconds
    assert unloaded("next-word", served.batcher.work_of([])._replace(items=1, tokens=4, longest=4)) > 0
    monkeypatch.setattr(served.batcher, "unloaded_seconds", lambda operation, work: 0.002)

    async def never(operation, parts, deadline, urgency, flow):
        raise DeadlineExceeded

    monkeypatch.setattr(served.batcher, "submit", never)
    for tokens, deadline in ((10, ""), (500, "short")):
        before = metric(client, REQUESTS, status="504", deadline=deadline)
        assert post(client, 900, "/v1/completions", {"prompt": "we had", "max_tokens": tokens}) == 504
        assert metric(client, REQUESTS, status="504", deadline=deadline) == before + 1


@pytest.fixture(scope="module")
def inference(wait_until):
    with TestClient(create_app(Settings(threads=1, models=("intents", "de-en")))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def test_the_parameter_timeout_of_open_inference(inference, metric):
    texts = {"name": "text", "datatype": "BYTES", "shape": [64], "data": ["what is the weather like in Paris"] * 64}
    body = {"inputs": [texts], "parameters": {"timeout": 1}}
    assert inference.post("/v2/models/intents/infer", json=body).status_code == 504
    labels = {"model": "intents", "status": "504"}
    assert metric(inference, REQUESTS, deadline="short", **labels) == metric(inference, REQUESTS, **labels) == 1


def test_translations(inference, metric):
    text = "Guten Morgen, wie geht es Ihnen heute? " * 3
    assert post(inference, 3, "/v1/translate", {"text": text}) == 504
    labels = {"model": "de-en", "status": "504"}
    assert metric(inference, REQUESTS, deadline="short", **labels) == metric(inference, REQUESTS, **labels) == 1
