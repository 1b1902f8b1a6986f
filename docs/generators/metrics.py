"""The page of the Prometheus metrics, from the registry of `service.observability.metrics`."""

from prometheus_client.metrics import MetricWrapperBase

from docs.generators.markdown import cell, code, page, table
from service.observability.metrics import Metrics

__all__ = ["metrics_page"]

_INTRODUCTION = """
`GET /metrics` answers in Prometheus text format. Durations are in seconds; a histogram has the series `_bucket`, `_sum`
and `_count`. Labels never hold texts, client addresses or keys. Series of a model disappear when it is unloaded.
[Operations](../operations.md) has the dashboard, alerts and queries.
"""

_PROCESS = """
On Linux, the metrics of the process (`process_resident_memory_bytes`, `process_cpu_seconds_total`,
`process_open_fds` and others of prometheus-client) are exported too.
"""


def metrics_page() -> str:
    """Return the page: every metric of the service with type, labels and help."""
    wrappers = {each for each in Metrics().registry._collector_to_names if isinstance(each, MetricWrapperBase)}
    rows = [
        [code(_name(metric)), str(metric._type), ", ".join(map(code, metric._labelnames)), cell(metric._documentation)]
        for metric in sorted(wrappers, key=_name)
    ]
    return page(
        "Metrics",
        "service/observability/metrics.py",
        [_INTRODUCTION, table(["metric", "type", "labels", "meaning"], rows), _PROCESS],
    )


def _name(metric: MetricWrapperBase) -> str:
    return f"{metric._name}_total" if metric._type == "counter" else metric._name
