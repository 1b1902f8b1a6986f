"""The queries by which KEDA scales, evaluated by Prometheus."""

import re
import subprocess

import pytest
import yaml

from service.observability.metrics import Metrics
from tests.containers.helm import NAMESPACE, rendered, switched
from tests.containers.test_dashboard import known_metrics
from tests.fixtures.optional_tools import installed, missing, needs

pytestmark = needs("helm_python", "kubernetes_validate")

OURS = f'namespace="{NAMESPACE}", service="shop-softserve"'
SERIES = {
    # A text waits 0.5 s in one pod and 0.1 s in the other, of another model nothing; 25 % of the texts are refused.
    "busy": {
        f'softserve_queue_duration_seconds_sum{{{OURS}, pod="a", model="de-en"}}': "0+15x20",
        f'softserve_queue_duration_seconds_count{{{OURS}, pod="a", model="de-en"}}': "0+30x20",
        f'softserve_queue_duration_seconds_sum{{{OURS}, pod="b", model="de-en"}}': "0+3x20",
        f'softserve_queue_duration_seconds_count{{{OURS}, pod="b", model="de-en"}}': "0+30x20",
        f'softserve_queue_duration_seconds_sum{{{OURS}, pod="a", model="intents"}}': "0+0x20",
        f'softserve_queue_duration_seconds_count{{{OURS}, pod="a", model="intents"}}': "0+30x20",
        f'softserve_rejected_total{{{OURS}, pod="a", model="de-en", reason="overloaded"}}': "0+20x20",
        f'softserve_rejected_total{{{OURS}, pod="b", model="de-en", reason="expired"}}': "0+10x20",
        f'softserve_rejected_total{{{OURS}, pod="b", model="de-en", reason="invalid"}}': "0+90x20",
        'softserve_queue_duration_seconds_sum{namespace="other", service="shop-softserve", model="de-en"}': "0+900x20",
        'softserve_queue_duration_seconds_count{namespace="other", service="shop-softserve", model="de-en"}': "0+9x20",
    },
    "idle": {
        f'softserve_queue_duration_seconds_sum{{{OURS}, pod="a", model="de-en"}}': "7+0x20",
        f'softserve_queue_duration_seconds_count{{{OURS}, pod="a", model="de-en"}}': "9+0x20",
    },
    "not scraped": {},
}
EXPECTED = {"busy": {"wait": 0.3, "refused": 0.25}, "idle": {"wait": 0, "refused": 0}, "not scraped": {}}


@pytest.fixture(scope="module")
def queries():
    objects = rendered(switched({"keda": True, "serviceMonitor": True}))
    triggers = objects["ScaledObject"]["spec"]["triggers"]
    assert {trigger["metricType"] for trigger in triggers} == {"Value"}
    assert {trigger["metadata"]["ignoreNullValues"] for trigger in triggers} == {"false"}
    return {trigger["name"]: trigger["metadata"]["query"] for trigger in triggers}


@pytest.mark.parametrize("state", SERIES)
def test_each_query_has_one_value_and_none_where_no_pod_is_scraped(queries, state, tmp_path):
    if not installed("promtool"):
        pytest.skip(missing("promtool"))
    expected = EXPECTED[state]
    test = {
        "interval": "15s",
        "input_series": [{"series": series, "values": values} for series, values in SERIES[state].items()],
        "promql_expr_test": [
            {
                "expr": f"round({query}, 0.001)",
                "eval_time": "4m",
                "exp_samples": [{"labels": "{}", "value": expected[name]}] if expected else [],
            }
            for name, query in queries.items()
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"tests": [test]}))
    finished = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_the_queries_ask_for_what_is_measured(queries):
    metrics = Metrics()
    labels = {"model", *metrics.rejected._labelnames, "namespace", "service"}
    for query in queries.values():
        assert set(re.findall(r"softserve_\w+", query)) <= known_metrics()
        assert set(re.findall(r"(\w+)=~?\"", query)) <= labels
    assert "model" in metrics.queue_duration._labelnames
