import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from service.observability.metrics import Metrics

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
    "batch_cost_seconds",
    "device_memory_bytes",
    "rejected",
    "engine_failures",
    "computation_timeouts",
    "stuck_computations",
    "generated_tokens",
    "prefix_cache_hits",
    "result_cache_inputs",
    "result_cache_bytes",
    "key_requests",
    "key_texts",
    "key_characters",
    "key_refused",
    "prefix_cache_misses",
    "model_info",
    "model_load_duration_seconds",
    "models_expected",
    "models_ready",
    "model_load_failures",
    "bundle_problems",
    "experiment_info",
    "experiment_inputs",
    "experiment_requests",
    "experiment_inference_seconds",
    "event_loop_lag_seconds",
    "workers_replaced",
]
LABELS = {
    "model",
    "kind",
    "key",
    "limit",
    "outcome",
    "endpoint",
    "status",
    "deadline",
    "reason",
    "version",
    "task",
    "backend",
    "device",
    "operation",
    "term",
    "experiment",
    "side",
}


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
    observer.batch([4, 2], [0.5, 1.5])
    observer.computed(0.25)
    expected = {
        "batch_items_sum": 2,
        "batch_tokens_sum": 6,
        "batch_padding_ratio_sum": 0.25,
        "inference_duration_seconds_sum": 0.25,
        "inference_duration_seconds_count": 1,
        "queue_duration_seconds_sum": 2.0,
        "queue_duration_seconds_count": 2,
    }
    assert {name: value(metrics, name, model="next-word", version="3") for name in expected} == expected


def test_equal_lengths_have_no_padding(metrics, observer):
    observer.batch([3, 3, 3], [0, 0, 0])
    observer.computed(0.1)
    assert value(metrics, "batch_padding_ratio_bucket", model="next-word", version="3", le="0.0") == 1


def test_the_queue_is_shown_as_it_is_now(metrics, observer):
    observer.queued(5, 50)
    observer.queued(2, 20)
    assert value(metrics, "queue_items", model="next-word", version="3") == 2
    assert value(metrics, "queue_tokens", model="next-word", version="3") == 20


def test_what_may_wait_is_shown(metrics, observer):
    observer.limited(7, 70)
    assert value(metrics, "queue_limit_items", model="next-word", version="3") == 7
    assert value(metrics, "queue_limit_tokens", model="next-word", version="3") == 70


def test_refused_texts_are_counted_by_reason(metrics, observer):
    observer.cost("score", "cpu", {"fixed": 0.5, "token": 0.25})
    labels = {"model": "next-word", "version": "3", "operation": "score", "device": "cpu"}
    assert value(metrics, "batch_cost_seconds", **labels, term="fixed") == 0.5
    assert value(metrics, "batch_cost_seconds", **labels, term="token") == 0.25
    observer.rejected("overloaded", 3)
    observer.rejected("overloaded", 1)
    observer.rejected("expired", 1)
    assert value(metrics, "rejected_total", model="next-word", version="3", reason="overloaded") == 4
    assert value(metrics, "rejected_total", model="next-word", version="3", reason="expired") == 1


def test_a_loaded_model_is_described(metrics, observer):
    observer.loaded(1.5)
    described = {"model": "next-word", "version": "3", "task": "language-model", "backend": "onnx", "device": "cpu"}
    assert value(metrics, "model_info", **described) == 1
    assert value(metrics, "model_load_duration_seconds_sum", model="next-word", version="3") == 1.5


def test_a_model_is_not_described_before_it_is_loaded(metrics, observer):
    assert "softserve_model_info{" not in metrics.text().decode()


def test_tokenizing_is_timed(metrics, observer):
    observer.tokenized(0.125)
    assert value(metrics, "tokenize_duration_seconds_sum", model="next-word", version="3") == 0.125


def test_two_applications_share_no_numbers(metrics, observer):
    observer.queued(5, 50)
    assert value(Metrics(), "queue_items", model="next-word") is None


@pytest.mark.parametrize("name", ["request", "queue", "tokenize", "inference"])
def test_durations_are_told_apart_from_100_microseconds_up(metrics, observer, name):
    observer.tokenized(1e-4)
    observer.batch([1], [1e-4])
    observer.computed(1e-4)
    metrics.request_duration.labels("next-word", "/v1/score").observe(1e-4)
    labels = {"model": "next-word"} | ({"endpoint": "/v1/score"} if name == "request" else {"version": "3"})
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


def test_each_reason_of_a_failed_load_is_there_from_the_start(metrics):
    """An increase is only seen of a series that was there before."""
    (family,) = metrics.load_failures.collect()
    totals = {each.labels["reason"]: each.value for each in family.samples if each.name.endswith("_total")}
    assert totals == {"invalid": 0, "timeout": 0, "memory": 0, "crash": 0}


# ---- versions, and models that are unloaded ----


def model_of(name, version, task="language-model"):
    return SimpleNamespace(name=name, version=version, task=task), [SimpleNamespace(name="onnx", device="cpu")]


def busy(metrics, name, version):
    """An observer that has used every metric that it has."""
    observer = metrics.for_model(*model_of(name, version))
    observer.loaded(1.0)
    observer.limited(7, 70)
    observer.tokenized(0.1)
    observer.queued(2, 20)
    observer.batch([4], [0.1])
    observer.computed(0.1)
    observer.failed()
    observer.looked_up(True)
    observer.looked_up(False)
    for reason in ("overloaded", "expired"):
        observer.rejected(reason, 1)
    observer.generated(3)
    observer.used_cache(1, 2, 3)
    for status in ("200", "429"):
        metrics.requests.labels(name, "/v1/score", status, "").inc()
    metrics.request_duration.labels(name, "/v1/score").observe(0.1)
    return observer


def series_of(metrics, **labels):
    families = text_string_to_metric_families(metrics.text().decode())
    samples = [sample for family in families for sample in family.samples]
    return {sample.name for sample in samples if labels.items() <= sample.labels.items()}


def test_versions_have_series_of_their_own(metrics):
    for version in (3, 4):
        busy(metrics, "next-word", version).queued(version, 10 * version)
    assert value(metrics, "queue_items", model="next-word", version="3") == 3
    assert value(metrics, "queue_items", model="next-word", version="4") == 4


def test_failures_are_counted_from_0(metrics, observer):
    labels = {"model": "next-word", "version": "3"}
    assert value(metrics, "engine_failures_total", **labels) == 0
    observer.failed()
    assert value(metrics, "engine_failures_total", **labels) == 1


def test_computations_that_take_too_long_or_do_not_return_are_counted(metrics, observer):
    labels, told = {"model": "next-word", "version": "3"}, []
    observer.on_change = lambda: told.append(value(metrics, "stuck_computations", **labels))
    assert value(metrics, "computation_timeouts_total", **labels) == 0
    observer.computation_timed_out()
    assert value(metrics, "computation_timeouts_total", **labels) == 1
    observer.stuck_computations(2)
    observer.stuck_computations(1)
    assert told == [2, 1]
    observer.unloaded()
    observer.stuck_computations(0)
    assert "stuck_computations{" not in metrics.text().decode(), "what returns later makes no series"


def test_all_series_of_an_unloaded_model_go_and_no_others(metrics):
    old, new, other = busy(metrics, "next-word", 3), busy(metrics, "next-word", 4), busy(metrics, "intents", 1)
    names = series_of(metrics, model="next-word", version="4")
    old.unloaded()
    assert series_of(metrics, model="next-word", version="3") == set()
    assert series_of(metrics, model="next-word", version="4") == names
    assert "softserve_requests_total" in series_of(metrics, model="next-word")
    new.unloaded()
    assert series_of(metrics, model="next-word") == set()
    assert len(series_of(metrics, model="intents")) > 20
    other.unloaded()
    assert series_of(metrics, model="intents") == set()


def test_a_model_loaded_again_keeps_its_series(metrics):
    old = busy(metrics, "next-word", 3)
    again = busy(metrics, "next-word", 3)
    old.unloaded()
    assert value(metrics, "batch_items_count", model="next-word", version="3") == 2
    assert series_of(metrics, model="next-word", version="3", task="language-model") == {"softserve_model_info"}
    again.unloaded()
    assert series_of(metrics, model="next-word") == set()


def test_a_model_loaded_again_for_another_task_is_described_once(metrics):
    old = busy(metrics, "next-word", 3)
    metrics.for_model(*model_of("next-word", 3, "translation")).loaded(1.0)
    old.unloaded()
    assert series_of(metrics, task="language-model") == set()
    assert series_of(metrics, task="translation") == {"softserve_model_info"}


def test_what_is_counted_late_goes_too(metrics):
    """The old model of two with one name and version may be the last to end."""
    old, again = busy(metrics, "next-word", 3), busy(metrics, "next-word", 3)
    again.unloaded()
    old.generated(3)
    old.unloaded()
    assert series_of(metrics, model="next-word") == set()


def test_while_a_model_is_loaded_again_both_queues_count(metrics, observer):
    observer.queued(5, 50)
    again = metrics.for_model(*model_of("next-word", 3))
    again.queued(2, 20)
    assert value(metrics, "queue_items", model="next-word", version="3") == 7
    observer.unloaded()
    assert value(metrics, "queue_items", model="next-word", version="3") == 2
    assert value(metrics, "queue_tokens", model="next-word", version="3") == 20


def test_of_several_processes_only_the_series_of_loaded_models_are_shown(tmp_path):
    """Nothing can be removed from the files of prometheus-client."""
    code = """
from types import SimpleNamespace
from service.observability.metrics import Metrics
metrics = Metrics()
def load(version):
    observer = metrics.for_model(
        SimpleNamespace(name="m", version=version, task="t"), [SimpleNamespace(name="onnx", device="cpu")]
    )
    observer.loaded(1.0); observer.queued(2, 20); observer.limited(7, 70); observer.generated(3)
    observer.rejected("expired", 1)
    return observer
def unload(observer):
    observer.queued(0, 0); observer.unloaded()
metrics.models_expected.set(1); metrics.loop_lag.observe(0.5)
metrics.requests.labels("m", "/v1/score", "200", "").inc(); metrics.requests.labels("", "/livez", "200", "").inc()
first, second = load(1), load(2)
for step in (lambda: unload(first), lambda: unload(second), lambda: load(2)):
    step()
    print(metrics.text().decode() + "---")
"""
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", code]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    one, none, again = (
        [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        for text in finished.stdout.split("---\n")[:3]
    )
    assert {(sample.labels["model"], sample.labels.get("version")) for sample in one if "model" in sample.labels} == {
        ("", None),
        ("m", None),
        ("m", "2"),
    }
    assert {sample.labels["model"] for sample in none if "model" in sample.labels} == {""}
    for samples in (one, none, again):
        values = {sample.name: sample.value for sample in samples}
        assert values["softserve_models_expected"] == 1
        assert values["softserve_event_loop_lag_seconds_count"] == 1
    values = {sample.name: sample.value for sample in again if sample.labels.get("version") == "2"}
    assert values["softserve_queue_items"] == 2
    assert values["softserve_generated_tokens_total"] == 6
