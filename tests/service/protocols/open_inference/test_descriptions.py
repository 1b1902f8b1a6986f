"""Open Inference's descriptions of the server and its models."""

from types import SimpleNamespace

from models.store import load_bundle
from service.observability.metrics import Metrics
from service.protocols.open_inference import descriptions
from service.protocols.open_inference.served import find_model
from service.protocols.open_inference.statistics import statistics


def test_the_server_and_its_models(client):
    app = client.app
    assert descriptions.server(app)["name"] == "softserve"
    models = descriptions.served_models(app)
    assert [each["name"] for each in descriptions.index(app)] == [each.name for each in models]
    model = find_model(app, "next-word")
    found = descriptions.metadata(app, model)
    assert found["versions"] == [model.version]
    assert [each["name"] for each in found["inputs"]] == ["text"]
    assert {each["data_type"] for each in descriptions.config(model)["output"]} == {"TYPE_STRING", "TYPE_FP32"}
    (stats,) = descriptions.model_statistics(app, [find_model(app, "next-word.tokens")])["model_stats"]
    assert stats["name"] == "next-word.tokens"


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
