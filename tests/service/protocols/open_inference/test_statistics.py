"""Tests of statistics."""

from types import SimpleNamespace

from models.store import load_bundle
from service.metrics import Metrics
from service.protocols.open_inference.statistics import statistics


def test_they_are_those_of_the_metrics(errands_export):
    metrics, model = Metrics(), load_bundle(errands_export.path, threads=1)
    observer = metrics.for_model(model.manifest, [model.backend])
    served = SimpleNamespace(manifest=model.manifest)
    assert statistics(metrics, served)["inference_count"] == 0
    observer.tokenized(0.5)
    observer.batch([3, 4], [0.25, 0.5])
    observer.computed(2.0)
    observer.rejected("expired", 3)
    found = statistics(metrics, served)
    assert (found["name"], found["version"]) == ("errands", "1")
    assert (found["inference_count"], found["execution_count"]) == (2, 1)
    stats = found["inference_stats"]
    assert stats["queue"] == {"count": 2, "ns": 750_000_000}
    assert stats["compute_input"] == {"count": 1, "ns": 500_000_000}
    assert stats["compute_infer"] == {"count": 1, "ns": 2_000_000_000}
    assert stats["success"] == {"count": 1, "ns": 3_250_000_000}
    assert stats["fail"]["count"] == 3
