from types import SimpleNamespace

import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import Metrics

METRICS = [
    "requests",
    "request_duration_seconds",
    "tokenize_duration_seconds",
    "queue_duration_seconds",
    "inference_duration_seconds",
    "batch_items",
    "batch_tokens",
    "batch_padding_ratio",
    "queue_items",
    "queue_tokens",
    "queue_limit_items",
    "queue_limit_tokens",
    "rejected",
    "generated_tokens",
    "prefix_cache_hits",
    "prefix_cache_misses",
    "model_info",
    "model_load_duration_seconds",
    "workers_replaced",
]
LABELS = {"model", "endpoint", "status", "reason", "version", "task", "backend", "device"}


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def observer(metrics):
    manifest = SimpleNamespace(name="next-word", version=3, task="language-model")
    return metrics.for_model(manifest, [SimpleNamespace(name="onnx", device="cpu")])


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"softserve_{name}", labels)


def test_a_batch_counts_items_tokens_and_padding(metrics, observer):
    """Lengths 4 and 2 fill 6 of 2 x 4 positions: a quarter is padding."""
    observer.batch([4, 2], [0.5, 1.5], 0.25)
    expected = {
        "batch_items_sum": 2,
        "batch_tokens_sum": 6,
        "batch_padding_ratio_sum": 0.25,
        "inference_duration_seconds_sum": 0.25,
        "inference_duration_seconds_count": 1,
        "queue_duration_seconds_sum": 2.0,
        "queue_duration_seconds_count": 2,
    }
    assert {name: value(metrics, name, model="next-word") for name in expected} == expected


def test_equal_lengths_have_no_padding(metrics, observer):
    observer.batch([3, 3, 3], [0, 0, 0], 0.1)
    assert value(metrics, "batch_padding_ratio_bucket", model="next-word", le="0.0") == 1


def test_the_queue_is_shown_as_it_is_now(metrics, observer):
    observer.queued(5, 50)
    observer.queued(2, 20)
    assert value(metrics, "queue_items", model="next-word") == 2
    assert value(metrics, "queue_tokens", model="next-word") == 20


def test_what_may_wait_is_shown(metrics, observer):
    observer.limited(7, 70)
    assert value(metrics, "queue_limit_items", model="next-word") == 7
    assert value(metrics, "queue_limit_tokens", model="next-word") == 70


def test_refused_texts_are_counted_by_reason(metrics, observer):
    observer.rejected("overloaded", 3)
    observer.rejected("overloaded", 1)
    observer.rejected("expired", 1)
    assert value(metrics, "rejected_total", model="next-word", reason="overloaded") == 4
    assert value(metrics, "rejected_total", model="next-word", reason="expired") == 1


def test_a_loaded_model_is_described(metrics, observer):
    observer.loaded(1.5)
    described = {"model": "next-word", "version": "3", "task": "language-model", "backend": "onnx", "device": "cpu"}
    assert value(metrics, "model_info", **described) == 1
    assert value(metrics, "model_load_duration_seconds_sum", model="next-word") == 1.5


def test_a_model_is_not_described_before_it_is_loaded(metrics, observer):
    assert "softserve_model_info{" not in metrics.text().decode()


def test_tokenizing_is_timed(metrics, observer):
    observer.tokenized(0.125)
    assert value(metrics, "tokenize_duration_seconds_sum", model="next-word") == 0.125


def test_two_applications_share_no_numbers(metrics, observer):
    observer.queued(5, 50)
    assert value(Metrics(), "queue_items", model="next-word") is None


@pytest.mark.parametrize("name", ["request", "queue", "tokenize", "inference"])
def test_durations_are_told_apart_from_100_microseconds_up(metrics, observer, name):
    observer.tokenized(1e-4)
    observer.batch([1], [1e-4], 1e-4)
    metrics.request_duration.labels("next-word", "/v1/score").observe(1e-4)
    labels = {"model": "next-word"} | ({"endpoint": "/v1/score"} if name == "request" else {})
    assert value(metrics, f"{name}_duration_seconds_bucket", **labels, le="0.0001") == 1


def test_every_promised_metric_is_there_and_documented(metrics):
    families = {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}
    ours = {name for name in families if not name.startswith("process_") and not name.endswith("_created")}
    assert ours == {f"softserve_{name}" for name in METRICS}
    assert families["process_resident_memory_bytes"].samples[0].value > 0
    assert all(family.documentation for family in families.values())


def test_labels_have_few_values(metrics):
    collectors = [value for value in vars(metrics).values() if isinstance(value, MetricWrapperBase)]
    assert len(collectors) == len(METRICS) - 1  # nothing counts the processes of one
    assert {label for collector in collectors for label in collector._labelnames} <= LABELS
