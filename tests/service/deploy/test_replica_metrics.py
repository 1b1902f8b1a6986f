"""The metrics of several replicas; `test_cluster.py` asks two real ones for theirs."""

import threading
from types import SimpleNamespace

import pytest

from service.deploy import replica_metrics
from service.deploy.replica_metrics import ReplicaMetrics, merged
from service.observability.metrics import Metrics


def collected(name, count):
    metrics = Metrics()
    metrics.requests.labels("intents", "/v1/classify", "200", "").inc(count)
    return name, list(metrics.registry.collect())


def line(name, count):
    labels = f'{{deadline="",endpoint="/v1/classify",model="intents",replica="{name}",status="200"}}'
    return f"softserve_requests_total{labels} {count}.0\n"


def test_metrics_of_replicas_have_their_names():
    text = merged(dict([collected("a", 1), collected("b", 2)])).decode()
    assert text.count("# TYPE softserve_requests_total counter") == 1
    assert line("a", 1) in text
    assert line("b", 2) in text
    assert 'softserve_event_loop_lag_seconds_bucket{le="+Inf",replica="b"} 0.0' in text


@pytest.fixture
def asked(monkeypatch):
    """The text of replica `a`, where Ray's call of all replicas is replaced."""

    def text(results):
        handle = SimpleNamespace(broadcast=lambda method: SimpleNamespace(results=results))
        ray = SimpleNamespace(
            get_replica_context=lambda: SimpleNamespace(deployment="softserve", app_name="a"),
            get_deployment_handle=lambda deployment, application: handle,
        )
        monkeypatch.setattr(replica_metrics, "serve", ray)
        return ReplicaMetrics(lambda: collected("a", 1), "collect_metrics").text().decode()

    return text


def test_a_replica_that_fails_to_answer_is_left_out(asked):
    text = asked(lambda **options: [TimeoutError(), collected("b", 2), collected("a", 0)])
    assert line("a", 1) in text
    assert line("b", 2) in text


def test_where_the_others_cannot_be_asked_the_metrics_are_those_of_one(asked, monkeypatch):
    def fail(**options):
        raise RuntimeError("no deployment")

    assert line("a", 1) in asked(fail)
    monkeypatch.setattr(replica_metrics, "_TIMEOUT", 0.1)
    over = threading.Event()
    assert line("a", 1) in asked(lambda **options: over.wait(30))
    over.set()
