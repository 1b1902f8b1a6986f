"""The metrics of replicas side by side; `test_cluster.py` asks two of them for theirs."""

from service.deploy.replica_metrics import merged
from service.metrics import Metrics


def test_metrics_of_replicas_have_their_names():
    found = {}
    for name, count in (("a", 1), ("b", 2)):
        metrics = Metrics()
        metrics.requests.labels("intents", "/v1/classify", "200").inc(count)
        found[name] = list(metrics.registry.collect())
    text = merged(found).decode()
    assert text.count("# TYPE softserve_requests_total counter") == 1
    for name, count in (("a", 1), ("b", 2)):
        labels = f'{{endpoint="/v1/classify",model="intents",replica="{name}",status="200"}}'
        assert f"softserve_requests_total{labels} {count}.0\n" in text
    assert 'softserve_event_loop_lag_seconds_bucket{le="+Inf",replica="b"} 0.0' in text
