import threading

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from service.server.app import create_app
from service.settings import Settings


def families(client):
    return {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}


@pytest.fixture
def loading(library, monkeypatch):
    """A client of a service whose model does not load before the event is set."""
    go_on = threading.Event()

    def load(*_, **__):
        assert go_on.wait(20)
        return library

    monkeypatch.setattr("service.engine.replicas.load_verified", load)
    with TestClient(create_app(Settings(threads=1, models=("next-word:4",)))) as client:
        yield client, go_on
        go_on.set()


def test_a_live_process_answers(client):
    response = client.get("/livez")
    assert (response.status_code, response.json()) == (200, {"status": "alive"})


def test_a_loaded_service_is_ready(client):
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})


def test_a_loading_service_is_alive_and_not_ready(loading, detail_of, wait_until):
    client, go_on = loading
    assert client.get("/livez").status_code == 200
    response = client.get("/readyz")
    assert detail_of(response, 503) == "models are being loaded"
    assert response.headers["retry-after"] == "1"
    for path, body in [("next-word", {"context": "a"}), ("score", {"text": "a", "model": "next-word"})]:
        response = client.post(f"/v1/{path}", json=body)
        assert detail_of(response, 503) == "models are being loaded"
        assert response.headers["retry-after"] == "1"
    go_on.set()
    wait_until(lambda: client.get("/readyz").status_code == 200)
    assert client.post("/v1/next-word", json={"context": "a"}).status_code == 200


def test_a_service_may_stop_while_it_loads(loading):
    client, _ = loading
    assert client.get("/readyz").status_code == 503


def test_a_broken_bundle_is_named_and_never_ready(broken_models, detail_of, wait_until, caplog):
    with TestClient(create_app(Settings(model_dirs=(broken_models,)))) as client:
        wait_until(lambda: "failed" in client.get("/readyz").json()["detail"])
        assert "tokenizer.json does not match its checksum" in detail_of(client.get("/readyz"), 503)
        assert client.get("/livez").status_code == 200
        assert detail_of(client.post("/v1/next-word", json={"context": "a"}), 503)
    assert "tokenizer.json does not match its checksum" in caplog.text


def test_metrics_are_in_the_text_format_and_complete(client):
    client.post("/v1/next-word", json={"context": "a"})
    assert client.get("/metrics").headers["content-type"].startswith("text/plain; version=")
    defined = {family.name for family in client.app.state.metrics.registry.collect()}
    assert {name for name in families(client) if not name.endswith("_created")} == defined
    assert len(defined) >= 13


def test_metrics_describe_the_model(client, library):
    (sample,) = families(client)["softserve_model_info"].samples
    manifest = library.manifest
    assert sample.labels == {
        "model": manifest.name,
        "version": str(manifest.version),
        "task": manifest.task,
        "backend": "onnx",
        "device": "cpu",
    }


def test_metrics_count_requests_and_batches(client, metric):
    def counts():
        return (
            metric(client, "softserve_requests_total", endpoint="/v1/score", status="200", model="next-word"),
            metric(client, "softserve_batch_items_sum", model="next-word"),
            metric(client, "softserve_batch_tokens_sum", model="next-word"),
            metric(client, "softserve_tokenize_duration_seconds_count", model="next-word"),
            metric(client, "softserve_request_duration_seconds_count", endpoint="/v1/score"),
        )

    before = counts()
    client.post("/v1/score", json={"text": ["thank you", "a"]})
    assert [after - count for after, count in zip(counts(), before, strict=True)] == [1, 2, 5, 1, 1]


def test_refused_texts_are_counted(client, metric):
    before = metric(client, "softserve_rejected_total", model="next-word", reason="invalid")
    client.post("/v1/next-word", json={"context": ["a " * 100_000, "b"]})
    assert metric(client, "softserve_rejected_total", model="next-word", reason="invalid") == before + 2


def test_labels_never_hold_what_clients_send(client):
    secret = "zq7zq7"
    client.post("/v1/next-word", json={"context": secret}, headers={"X-Request-Id": secret, "User-Agent": secret})
    client.post("/v1/score", json={"text": secret, "model": secret})
    client.get(f"/{secret}")
    client.get(f"/v1/models/{secret}")
    client.request("PUT", f"/v1/models/{secret}?{secret}={secret}")
    assert secret not in client.get("/metrics").text
